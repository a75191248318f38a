"""Effects, intervals and bounds. Everything works on moments and on arrays of experiments at once.

moments      what is kept of an arm: count, means, covariances
effects      two arms -> absolute and relative effect; CUPED; non-inferiority
sequential   looking early: spending bounds, and intervals that hold at any time
multiplicity, proportions, quantiles, bayes, ratio_check, power
"""
