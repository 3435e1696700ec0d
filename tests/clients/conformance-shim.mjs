// Lets the conformance suite start under Node 20: it imports fs.globSync (Node 22), which only its other verbs use.
import { register } from 'node:module';

const shim = "export * from 'node:fs'; export { default } from 'node:fs'; export const globSync = () => [];";
const hooks = `
  const shim = 'data:text/javascript,' + encodeURIComponent(${JSON.stringify(shim)});
  export async function resolve(specifier, context, next) {
    const ours = specifier === 'fs' && context.parentURL?.includes('/conformance/');
    return ours ? { url: shim, shortCircuit: true } : next(specifier, context);
  }`;
register('data:text/javascript,' + encodeURIComponent(hooks));
