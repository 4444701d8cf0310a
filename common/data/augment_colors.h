// The steps of an Augmenter that change colours, blur, erase or project: their random draws, in Keras' order, and their
// effect.
#pragma once

#include "cairn/v1/data.pb.h"
#include "common/data/augment.h"

namespace cairn {

// Returns false if `step` is not one of these steps.
bool ApplyColors(const v1::Augmentation& step, AugmentDraws& draws, const PictureShape3& shape, float* numbers);

// Layer `layer` of a RandAugment or an AugMix, 0 .. kRandAugmentLayers - 1, with a factor of [low, high].
inline constexpr int kRandAugmentLayers = 11;
v1::Augmentation AugmentLayer(float low, float high, int layer);
v1::Augmentation RandAugmentLayer(const v1::RandAugment& augment, int layer);

// The steps that a RandomColorJitter applies, in order.
std::vector<v1::Augmentation> ColorJitterSteps(const v1::RandomColorJitter& jitter);

}  // namespace cairn
