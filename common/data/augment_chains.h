// The steps of an Augmenter that are made of others: AugMix, and the elastic transform, which displaces pixels.
#pragma once

#include <functional>

#include "cairn/v1/data.pb.h"
#include "common/data/augment.h"

namespace cairn {

// Applies a step to a picture.
using ApplyOneStep = std::function<void(const v1::Augmentation& step, float* numbers)>;

// Draws the weights, then for each chain its operations and theirs, each by way of `apply`, which draws from `draws`.
void ApplyAugMix(const v1::AugMix& mix, AugmentDraws& draws, const PictureShape3& shape, const ApplyOneStep& apply,
                 float* numbers);

void ApplyElastic(const v1::RandomElasticTransform& elastic, AugmentDraws& draws, const PictureShape3& shape,
                  float* numbers);

}  // namespace cairn
