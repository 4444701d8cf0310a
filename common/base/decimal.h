// Recovers the decimal number that a user wrote into a float32 field.
#pragma once

namespace cairn {

// The double nearest to the shortest decimal number that rounds to f: 0.999f means 0.999, so that 1 -
// Decimal(0.999f) is 0.001 as in Keras, whose hyper-parameters are doubles. A pure function.
double Decimal(float f);

}  // namespace cairn
