// The steps of an Augmenter that change colours, blur, erase or project: their draws, in Keras' order, and what is done
// with them.
#pragma once

#include "cairn/v1/data.pb.h"
#include "common/data/augment.h"

namespace cairn {

// False: it is another step.
bool ApplyColors(const v1::Augmentation& step, AugmentDraws& draws, const PictureShape3& shape, float* numbers);

// The layer with this number of a RandAugment, 0 .. kRandAugmentLayers - 1, with its factor.
inline constexpr int kRandAugmentLayers = 11;
v1::Augmentation RandAugmentLayer(const v1::RandAugment& augment, int layer);

// What a RandomColorJitter does, one after the other.
std::vector<v1::Augmentation> ColorJitterSteps(const v1::RandomColorJitter& jitter);

}  // namespace cairn
