""
cconditionalBTrueJxRyZXbY