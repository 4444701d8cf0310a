// Optimizers, losses, metrics and augmentations for job_numbers_test.cc, and of which of their numbers 0 or -1 is taken
// as it is.
#pragma once

#include <set>
#include <string>

namespace cairn {

// Over kSequences of job_numbers_test.cc.
inline constexpr const char* kTrainingChanges[] = {
    "optimizer { lamb { beta_1: 0.5 beta_2: 0.5 epsilon: 0.1 } }",
    "optimizer { adafactor { beta_2_decay: -0.5 epsilon_1: 0.1 epsilon_2: 0.1 clip_threshold: 0.5 } }",
    "optimizer { muon { weight_decay: 0.1 adam_weight_decay: 0.1 adam_beta_1: 0.5 adam_beta_2: 0.5 epsilon: 0.1 "
    "adam_lr_ratio: 0.5 momentum: 0.5 ns_steps: 2 muon_a: 2 muon_b: 2 muon_c: 2 rms_rate: 0.5 } }",
    "optimizer { sgd {} } metrics { kind: MEAN_IOU ignore_class: 1 }",
    "optimizer { schedule_free_adamw { beta_1: 0.5 beta_2: 0.5 epsilon: 0.1 warmup_steps: 2 } }",
};

// Embeddings, and pictures that are mixed.
inline constexpr char kMetricLearning[] = R"(
  model { layers { input { shape: [8, 8, 3] } } layers { flatten {} } layers { dense { units: 4 } }
          layers { unit_normalization {} } }
  data { path: "/data" augmentation { aug_mix { num_chains: 2 chain_depth: 2 factor: 0.5 alpha: 0.5 } }
         augmentation { random_elastic_transform { factor: 0.5 scale: 0.5 fill_mode: FILL_CONSTANT fill_value: 1 } } }
  loss { kind: CIRCLE gamma: 2 margin: 0.5 } batch_size: 8 replicas: 4 optimizer { sgd {} })";
inline constexpr char kMixed[] = R"(
  model { layers { input { shape: [8, 8, 3] } } layers { flatten {} } layers { dense { units: 4 } } }
  data { path: "/data" augmentation { mix_up { alpha: 0.5 } } augmentation { cut_mix { factor: 0.5 } } }
  loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY } batch_size: 8 replicas: 4 optimizer { sgd {} })";

inline const std::set<std::string> kTrainingZeros = {
    "Lamb.beta_1",
    "Lamb.beta_2",
    "Adafactor.epsilon_2",
    "Muon.weight_decay",
    "Muon.adam_weight_decay",
    "Muon.adam_beta_1",
    "Muon.adam_beta_2",
    "Muon.adam_lr_ratio",
    "Muon.momentum",
    "Muon.muon_a",
    "Muon.muon_b",
    "Muon.muon_c",
    "Muon.rms_rate",
    "ScheduleFreeAdamW.beta_2",
    "ScheduleFreeAdamW.warmup_steps",
    "Metric.ignore_class",
    "CutMix.factor",
    "AugMix.factor",
    "RandomElasticTransform.factor",
    "RandomElasticTransform.scale",
    "RandomElasticTransform.fill_value",
    "Loss.margin",
    "Loss.gamma",
};

inline const std::set<std::string> kTrainingNegatives = {
    "Adafactor.beta_2_decay",           "Muon.muon_a", "Muon.muon_b", "Muon.muon_c", "Metric.ignore_class",
    "RandomElasticTransform.fill_value"};

}  // namespace cairn
