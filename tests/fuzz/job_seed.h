// A small job that every target of the control plane starts from.
#pragma once

#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/data.pb.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "cairn/v1/optimizer.pb.h"

namespace cairn {

// Two dense layers: 16 x 8 + 8 + 8 x 4 + 4 parameters, four partitions of 256 bytes.
inline v1::JobSpec SmallJob(bool asynchronous) {
  v1::JobSpec spec;
  spec.set_name("small");
  spec.mutable_model()->add_layers()->mutable_input()->add_shape(16);
  spec.mutable_model()->add_layers()->mutable_dense()->set_units(8);
  v1::Dense& out = *spec.mutable_model()->add_layers()->mutable_dense();
  out.set_units(4);
  out.set_activation(v1::SOFTMAX);
  spec.mutable_data()->set_path("/data");
  spec.mutable_loss()->set_kind(v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
  spec.add_metrics()->set_kind(v1::Metric::ACCURACY);
  spec.mutable_optimizer()->mutable_sgd()->set_momentum(0.5f);
  spec.set_batch_size(8);
  spec.set_epochs(2);
  spec.set_replicas(2);
  spec.set_partition_bytes(256);
  if (asynchronous) spec.set_strategy(v1::PARAMETER_SERVER);
  return spec;
}

// A job of pictures that uses nearly every field of a job.
inline constexpr char kFullJobText[] = R"(
    name: "full"
    model { layers { input { shape: [8, 8, 3] } } layers { conv2d { filters: 4 kernel_size: 3 } } layers { batch_normalization {} }
            layers { flatten {} } layers { dense { units: 4 activation: SOFTMAX } } }
    data { path: "/data" validation_split: 0.1 cache_mib: 1 cache_dir: "/cache" drop_remainder: true
           tfrecord { input: "x" label: "y" encoding: NUMBERS shape: [8, 8, 3] label_offset: 1 }
           augmentation { random_flip { mode: HORIZONTAL } } augmentation { random_rotation { factor: [0.1] fill_mode: WRAP } }
           augmentation { random_zoom { height_factor: [-0.1, 0.1] } } augmentation { random_crop { height: 8 width: 8 padding: 2 } }
           augmentation { random_translation { height_factor: [0.1] width_factor: [0.2] } } augmentation { random_contrast { factor: [0.2] } }
           augmentation { random_brightness { factor: [0.2] } } augmentation { cutout { size: 3 fill_value: 1 } }
           augmentation { random_shear { x_factor: 0.1 } } augmentation { random_invert {} } augmentation { rand_augment { num_ops: 3 factor: 0.4 } }
           augmentation { random_posterization { factor: [2, 6] } } augmentation { random_gaussian_blur { kernel_size: 3 sigma: 0.5 } }
           augmentation { random_erasing { scale: 0.2 fill_value: 7 } } augmentation { random_perspective { scale: 0.2 } }
           augmentation { equalization { bins: 16 } } augmentation { solarization { threshold_factor: 0.5 } } augmentation { auto_contrast {} }
           augmentation { aug_mix { factor: 0.2 } } augmentation { random_elastic_transform { scale: 0.5 } } augmentation { mix_up {} } }
    loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY label_smoothing: 0.1 }
    metrics { kind: ACCURACY } metrics { kind: TOP_K_ACCURACY k: 2 }
    optimizer { adamw { beta_1: 0.8 amsgrad: true weight_decay: 0.01 } learning_rate: 0.01 global_clipnorm: 1 ema { momentum: 0.9 overwrite_frequency: 3 }
                exclude_from_weight_decay: "bias" schedule { cosine_decay { decay_steps: 100 warmup_steps: 10 warmup_target: 0.1 } } }
    class_weight { class_id: 0 weight: 2 } class_weight { class_id: 3 weight: 0.5 }
    batch_size: 8 epochs: 3 replicas: 2 accumulate_steps: 2 validation_freq: 2 durability: LOGGED_AND_REPLICATED backups: 1 backup_replicas: 1
    checkpoints { dir: "/c" every_steps: 10 keep_max: 2 save_best: "val_loss" }
    callbacks { model_checkpoint { filepath: "/m-{epoch:02d}.keras" save_best_only: true } }
    callbacks { early_stopping { patience: 2 restore_best_weights: true } }
    callbacks { tensorboard { histogram_freq: 1 update_freq: "10" } } callbacks { csv_logger { filename: "/l.csv" separator: ";" } }
    callbacks { terminate_on_nan {} })";

inline v1::DataInfo SmallData() {
  v1::DataInfo data;
  data.set_format(v1::Data::CSV);
  data.set_train_examples(40);
  data.set_validation_examples(8);
  data.set_test_examples(16);
  data.add_example_shape(16);
  data.set_classes(4);
  return data;
}

}  // namespace cairn
