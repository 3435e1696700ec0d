// Finds a tool by what it does, reads what it takes, and calls it twice at once.
const [tool] = await openclaw.tools.search("add two numbers");
const { signature } = await openclaw.tools.describe(tool.id);
console.log(`${tool.id} takes ${signature}`);
const answers = await Promise.all([
  openclaw.tools.call(tool.id, { a: 2, b: 40 }),
  openclaw.tools.call(tool.id, { a: 0.1, b: 0.2 }),
]);
return answers.map(({ result }) => result.details);
