

executor-1¬