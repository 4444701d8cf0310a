// Goal: mixing examples is refused by name wherever the average of two labels is no label; class numbers become
// distributions, and their loss the one that takes them.
#include "common/model/mixed_labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/model/job_check.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

v1::JobSpec Job(const std::string& loss, const std::string& data, const std::string& last = "units: 3") {
  return FromText<v1::JobSpec>("model { layers { input { shape: [8, 8, 1] } } layers { flatten {} } layers { dense { " +
                               last + " } } } data { path: \"/data\" " + data + " } loss { " + loss +
                               " } optimizer { sgd {} }");
}

TEST(MixedLabels, ClassNumbersBecomeDistributions) {
  const absl::StatusOr<CheckedJob> sparse = CheckJob(Job("kind: SPARSE_CATEGORICAL_CROSSENTROPY from_logits: true",
                                                         "augmentation { random_flip {} } augmentation { "
                                                         "mix_up {} }"));
  ASSERT_TRUE(sparse.ok()) << sparse.status();
  EXPECT_EQ(MixedClasses(sparse->spec, sparse->graph), 3);
  EXPECT_EQ(ComputedLoss(sparse->spec).kind(), v1::Loss::CATEGORICAL_CROSSENTROPY);
  EXPECT_TRUE(ComputedLoss(sparse->spec).from_logits());
  EXPECT_EQ(sparse->spec.loss().kind(), v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY) << "the job's stays";

  const absl::StatusOr<CheckedJob> number = CheckJob(Job("kind: HUBER", "augmentation { cut_mix {} }", "units: 1"));
  ASSERT_TRUE(number.ok()) << number.status();
  EXPECT_EQ(MixedClasses(number->spec, number->graph), 0);
  EXPECT_EQ(ComputedLoss(number->spec).kind(), v1::Loss::HUBER);

  const absl::StatusOr<CheckedJob> without = CheckJob(Job("kind: SPARSE_CATEGORICAL_CROSSENTROPY", ""));
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(ComputedLoss(without->spec).kind(), v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
}

TEST(MixedLabels, WhatIsRefused) {
  const std::string sparse = "kind: SPARSE_CATEGORICAL_CROSSENTROPY";
  const struct {
    v1::JobSpec job;
    const char* says;
  } cases[] = {
      {Job("kind: HINGE", "augmentation { mix_up {} }", "units: 1"),
       "data.augmentation[0]: mix_up averages labels, which HINGE does not take; leave it out, or use a cross-entropy"},
      {Job("kind: CIRCLE", "augmentation { cut_mix {} }"),
       "data.augmentation[0]: cut_mix averages labels, which CIRCLE does not take"},
      {Job(sparse + " ignore_class: 1", "augmentation { mix_up {} }"), "of which loss.ignore_class could be left out"},
      {Job(sparse, "format: TFRECORD weight_column: 'w' augmentation { mix_up {} }"),
       "but data.weight_column a weight"},
      {Job(sparse, "augmentation { mix_up {} } augmentation { random_flip {} }"),
       "data.augmentation[1]: behind mix_up, which mixes whole examples at the end; put it before"},
      {Job(sparse, "augmentation { mix_up { alpha: 0 } }"),
       "data.augmentation[0].mix_up.alpha: 0 is outside (0, 100]; use 0.2, say"},
      {Job(sparse, "augmentation { cut_mix { factor: 2 } }"),
       "data.augmentation[0].cut_mix.factor: 2 is outside [0, 1]"},
      {Job(sparse, "augmentation { aug_mix { num_chains: 0 } }"),
       "data.augmentation[0].aug_mix.num_chains: 0 is not within 1 .. 64; use 3, say"},
      {Job(sparse, "augmentation { aug_mix { alpha: -1 } }"), "aug_mix.alpha: -1 is outside (0, 100]; use 1, say"},
      {Job(sparse, "augmentation { random_elastic_transform { scale: [0.5, 0.1] } }"),
       "random_elastic_transform.scale: its low 0.5 is above its high 0.1; exchange them"},
      {Job(sparse, "augmentation { random_elastic_transform { fill_value: 3 } }"),
       "random_elastic_transform.fill_value: only for fill_mode FILL_CONSTANT"},
      {Job(sparse, "augmentation {}"), "rand_augment, aug_mix, random_elastic_transform, cutout, mix_up, cut_mix"},
  };
  for (const auto& c : cases) {
    const absl::StatusOr<CheckedJob> job = CheckJob(c.job);
    EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument) << c.says;
    EXPECT_THAT(std::string(job.status().message()), HasSubstr(c.says));
  }
}

}  // namespace
}  // namespace cairn
