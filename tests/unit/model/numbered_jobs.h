// Jobs that between them hold every message with a number in it; for job_numbers_test.cc.
#pragma once

namespace cairn {

inline constexpr char kPictures[] = R"(
  model {
    layers { input { shape: [32, 32, 3] } }
    layers { rescaling { scale: 0.1 offset: 0.5 } }
    layers { conv2d { filters: 8 kernel_size: 3 strides: 1 dilation_rate: 1 groups: 1 padding: SAME
                      kernel_initializer { kind: VARIANCE_SCALING scale: 2 } bias_initializer { kind: CONSTANT value: 0.5 }
                      kernel_regularizer { l1: 0.1 l2: 0.1 } } }
    layers { batch_normalization { momentum: 0.9 epsilon: 0.01 } }
    layers { activation { activation: LEAKY_RELU negative_slope: 0.1 } } layers { activation { activation: ELU alpha: 0.5 } }
    layers { depthwise_conv2d { kernel_size: 3 strides: 1 dilation_rate: 1 depth_multiplier: 1 padding: SAME } }
    layers { separable_conv2d { filters: 8 kernel_size: 3 strides: 1 dilation_rate: 1 depth_multiplier: 1 padding: SAME } }
    layers { conv2d_transpose { filters: 8 kernel_size: 3 strides: 1 dilation_rate: 1 output_padding: 0 padding: SAME } }
    layers { group_normalization { groups: 4 epsilon: 0.01 } }
    layers { max_pooling2d { pool_size: 2 strides: 2 } } layers { average_pooling2d { pool_size: 2 strides: 2 } }
    layers { up_sampling2d { size: 2 } } layers { zero_padding2d { padding: 1 } }
    layers { cropping2d { cropping: 1 } } layers { prelu { shared_axes: 1 } }
    layers { spatial_dropout2d { rate: 0.1 } }
    layers { reshape { target_shape: [8, -1] } }
    layers { permute { dims: [2, 1] } } layers { flatten {} }
    layers { layer_normalization { epsilon: 0.01 } }
    layers { dense { units: 8 kernel_initializer { kind: RANDOM_UNIFORM minval: -0.1 maxval: 0.1 } } }
    layers { dropout { rate: 0.1 } }
    layers { dense { units: 8 kernel_initializer { kind: RANDOM_NORMAL mean: 0 stddev: 0.1 } } }
    layers { dense { units: 4 activation: SOFTMAX } }
  }
  data {
    path: "/data" validation_split: 0.1 test_split: 0.1 split_seed: 1 image_height: 32 image_width: 32 cache_mib: 8 prefetch: 1
    augmentation { random_rotation { factor: 0.1 fill_mode: FILL_CONSTANT fill_value: 1 } }
    augmentation { random_zoom { height_factor: 0.1 width_factor: 0.1 fill_mode: FILL_CONSTANT fill_value: 1 } }
    augmentation { random_translation { height_factor: 0.1 width_factor: 0.1 fill_mode: FILL_CONSTANT fill_value: 1 } }
    augmentation { random_crop { height: 32 width: 32 padding: 2 } }
    augmentation { random_brightness { factor: 0.1 } }
    augmentation { random_contrast { factor: 0.1 } }
    augmentation { cutout { size: 4 fill_value: 1 } }
  }
  loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY label_smoothing: 0.1 }
  metrics { kind: TOP_K_ACCURACY k: 2 }
  class_weight { class_id: 1 weight: 2 }
  batch_size: 8 epochs: 2 replicas: 2 seed: 1 steps_per_epoch: 4 validation_freq: 1 accumulate_steps: 1 validation_freq_steps: 2
  partition_bytes: 4096 threads_per_replica: 1 backups: 1 min_workers: 1 max_workers: 2 priority: 1 local_sync: 1
  checkpoints { dir: "/run" every_steps: 2 every_epochs: 1 every_minutes: 1 keep_max: 2 }
  callbacks { model_checkpoint { filepath: "/m.keras" save_best_only: true initial_value_threshold: 1 } }
  callbacks { early_stopping { min_delta: 0.1 patience: 1 baseline: 1 start_from_epoch: 1 } }
  callbacks { reduce_lr_on_plateau { factor: 0.5 patience: 1 min_delta: 0.1 cooldown: 1 min_lr: 0.1 } }
  callbacks { tensorboard { histogram_freq: 1 } }
  optimizer { adam { beta_1: 0.5 beta_2: 0.5 epsilon: 0.1 } learning_rate: 0.1 weight_decay: 0.1 clipvalue: 1 })";

inline constexpr char kVolumes[] = R"(
  model {
    layers { input { shape: [16, 16, 16, 1] } }
    layers { conv3d { filters: 4 kernel_size: 3 strides: 1 dilation_rate: 1 groups: 1 padding: SAME } }
    layers { max_pooling3d { pool_size: 2 strides: 2 } } layers { average_pooling3d { pool_size: 2 strides: 1 } }
    layers { zero_padding3d { padding: 1 } } layers { cropping3d { cropping: 1 } } layers { up_sampling3d { size: 1 } }
    layers { conv3d_transpose { filters: 4 kernel_size: 2 strides: 2 dilation_rate: 1 output_padding: 1 } }
    layers { adaptive_max_pooling3d { output_size: 4 } } layers { reshape { target_shape: [8, 8, 4] } }
    layers { resizing { height: 9 width: 9 pad_to_aspect_ratio: true fill_value: 1 } }
    layers { center_crop { height: 8 width: 8 } }
    layers { reshape { target_shape: [-1, 4] } } layers { zero_padding1d { padding: 1 } }
    layers { cropping1d { cropping: 1 } } layers { up_sampling1d { size: 1 } }
    layers { depthwise_conv1d { kernel_size: 3 strides: 1 dilation_rate: 1 depth_multiplier: 1 } }
    layers { separable_conv1d { filters: 4 kernel_size: 3 strides: 1 dilation_rate: 1 depth_multiplier: 1 } }
    layers { conv1d_transpose { filters: 4 kernel_size: 2 strides: 2 dilation_rate: 1 output_padding: 1 } }
    layers { global_max_pooling1d {} } layers { dense { units: 4 activation: SOFTMAX } }
  }
  data { path: "/data" format: TFRECORD tfrecord { shape: [16, 16, 16, 1] } }
  loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
  batch_size: 8 optimizer { sgd {} } )";

inline constexpr char kSequences[] = R"(
  model {
    layers { name: "in" input { shape: 16 } }
    layers { embedding { input_dim: 100 output_dim: 8 } }
    layers { conv1d { filters: 8 kernel_size: 3 strides: 1 dilation_rate: 1 groups: 1 padding: SAME } }
    layers { max_pooling1d { pool_size: 2 strides: 2 } } layers { name: "x" average_pooling1d { pool_size: 2 strides: 2 } }
    layers { name: "m" multi_head_attention { num_heads: 2 key_dim: 4 value_dim: 4 dropout: 0.1 } inputs: ["x", "x"] }
    layers { dot { axes: 2 } inputs: ["m", "x"] } layers { global_average_pooling1d {} }
    layers { dense { units: 4 activation: SOFTMAX } }
  }
  data { path: "/data" format: TFRECORD tfrecord { shape: 16 label_offset: 1 } }
  loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
  batch_size: 8 replicas: 4 )";

// Over kSequences.
inline constexpr const char* kChanges[] = {
    "optimizer { sgd { momentum: 0.5 } clipnorm: 1 } strategy: PARAMETER_SERVER staleness_bound: 2",
    "optimizer { adagrad { initial_accumulator_value: 0.5 epsilon: 0.1 } global_clipnorm: 1 }",
    "optimizer { rmsprop { rho: 0.5 momentum: 0.5 epsilon: 0.1 } ema { momentum: 0.5 overwrite_frequency: 2 } }",
    "optimizer { adamw { beta_1: 0.5 beta_2: 0.5 epsilon: 0.1 weight_decay: 0.1 } }",
    "optimizer { sgd {} } compute_dtype: FLOAT16 device: GPU loss_scaling { initial_scale: 2 dynamic_growth_steps: 2 }",
    "optimizer { sgd {} } backup_replicas: 1",
    "optimizer { sgd {} schedule { piecewise_constant_decay { boundaries: 1 values: [0.1, 0.2] } } }",
    "optimizer { sgd {} schedule { exponential_decay { decay_steps: 2 decay_rate: 0.5 } } }",
    "optimizer { sgd {} schedule { polynomial_decay { decay_steps: 2 end_learning_rate: 0.1 power: 2 } } }",
    "optimizer { sgd {} schedule { inverse_time_decay { decay_steps: 2 decay_rate: 0.5 } } }",
    "optimizer { sgd {} schedule { cosine_decay { decay_steps: 2 alpha: 0.5 warmup_steps: 2 warmup_target: 0.5 } } }",
    "optimizer { sgd {} schedule { cosine_decay_restarts { first_decay_steps: 2 t_mul: 2 m_mul: 2 alpha: 0.5 } } }",
};

}  // namespace cairn
