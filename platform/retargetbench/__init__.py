"""RetargetBench: a neutral benchmark of skinned motion retargeting."""
