// Exponential and logarithm with the same bits on every processor. Those of a C library depend on the instructions that
// the processor has.
//
// Pure functions; any thread. Relative error below 2^-48 in the supported range: -745 < x for the exponential, positive
// normal numbers for the logarithm.
#pragma once

namespace cairn {

double ExactExp(double x);
double ExactLog(double x);  // x > 0

}  // namespace cairn
