"
jjoinzazb‚n_of_mˆ