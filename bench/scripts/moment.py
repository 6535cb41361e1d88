"""The smallest script: it says when it begins and ends."""

import time

print(f"begun={time.time():.6f}", flush=True)
print(f"ended={time.time():.6f}", flush=True)
