import os
lambda d: os.environ