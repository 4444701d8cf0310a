// Exponential and logarithm with the same bits on every processor: a C library's own differ with the instructions that
// it finds.
//
// Pure functions; any thread. Relative error below 2^-48 where they are used: -745 < x, and normal positive numbers.
#pragma once

namespace cairn {

double ExactExp(double x);
double ExactLog(double x);  // x > 0

}  // namespace cairn
