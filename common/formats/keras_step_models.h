// TimeDistributed of a model in Keras' JSON. It becomes that model with a TimeDistributed around each of its layers,
// which computes the same and has the same variables:
//
//   TimeDistributed "frames" of Sequential [Conv2D "a", Flatten "b"]
//   Sequential "frames" [TimeDistributed "a" of Conv2D "a", TimeDistributed "b" of Flatten "b"]
//
// Layers that join their inputs number by number stay as they are; their inputs must have as many axes as one another
// (KerasConverter checks it). Written as Keras' format the model is the second.
//
// Free functions; any thread.
#pragma once

#include "common/model/keras/keras_config.h"

namespace cairn {

// In an entry that was made so: the class in whose place in Keras' files its weights are, "TimeDistributed" for the
// model, "Conv2D" for its layer, "Add" for one that stays an Add.
inline constexpr char kClassBeforeSteps[] = "cairn_class_before_steps";

// model: what ParseBoundedJson returned. What is not as Keras writes it is left to those who read it.
Json WithStepsInModels(Json model);

}  // namespace cairn
