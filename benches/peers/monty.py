"""A Python interpreter in pooled worker processes: check out, one host call, result. `python monty.py RUNS`"""

import json
import sys
import time

from pydantic_monty import Monty

took = []
with Monty() as pool:
    for run in range(-3, int(sys.argv[1])):  # the first few pay for what is paid once
        start = time.perf_counter()
        with pool.checkout() as session:
            value = session.feed_run("call('echo', {'n': 41})['n'] + 1", external_lookup={"call": lambda tool, args: args})
        ms = (time.perf_counter() - start) * 1e3
        assert value == 42, value
        if run >= 0:
            took.append(ms)
print(json.dumps(took))
