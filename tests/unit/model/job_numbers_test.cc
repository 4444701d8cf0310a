// Goal: no number of a job is taken for another one. For every numeric field that a job can hold (found by reflection,
// so a new one too): 0, -1 and values far out of range, given explicitly, are either taken as they are or refused by
// the field's name. Where 0 or -1 is taken, the tables below say so, and the field's comment says what it means.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/reflection.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/model/job_check.h"
#include "common/model/ready_made/ready_made.h"
#include "tests/unit/model/external_job.h"
#include "tests/unit/model/job_number_tables.h"
#include "tests/unit/model/job_numbers_categories.h"
#include "tests/unit/model/job_numbers_features.h"
#include "tests/unit/model/job_numbers_moves.h"
#include "tests/unit/model/job_numbers_recurrent.h"
#include "tests/unit/model/job_numbers_training.h"
#include "tests/unit/model/job_numbers_windows.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::TextFormat;
using ::testing::HasSubstr;

// ---- jobs that hold every message ----

constexpr char kPictures[] = R"(
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
    augmentation { random_shear { x_factor: 0.1 y_factor: 0.1 fill_mode: FILL_CONSTANT fill_value: 1 } }
    augmentation { random_saturation { factor: 0.5 } } augmentation { random_hue { factor: 0.1 } }
    augmentation { random_grayscale { factor: 0.5 } }
    augmentation { random_color_jitter { brightness_factor: 0.1 contrast_factor: 0.1 saturation_factor: 0.1
                                         hue_factor: 0.1 } }
    augmentation { random_color_degeneration { factor: 0.1 } } augmentation { random_invert { factor: 0.5 } }
    augmentation { random_posterization { factor: 4 } } augmentation { random_sharpness { factor: 0.1 } }
    augmentation { random_gaussian_blur { factor: 0.5 kernel_size: 3 sigma: 0.5 } }
    augmentation { random_erasing { factor: 0.5 scale: 0.1 fill_value: 1 } }
    augmentation { random_perspective { factor: 0.5 scale: 0.5 fill_value: 1 } }
    augmentation { auto_contrast {} } augmentation { equalization { bins: 16 } }
    augmentation { solarization { addition_factor: 0.1 threshold_factor: 0.1 } }
    augmentation { rand_augment { num_ops: 2 factor: 0.1 } }
  }
  loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY label_smoothing: 0.1 }
  metrics { kind: TOP_K_ACCURACY k: 2 }
  class_weight { class_id: 1 weight: 2 }
  batch_size: 8 epochs: 2 replicas: 2 seed: 1 steps_per_epoch: 4 validation_freq: 1 accumulate_steps: 1 validation_freq_steps: 2
  digest_every_steps: 5
  partition_bytes: 4096 threads_per_replica: 1 backups: 1 min_workers: 1 max_workers: 2 priority: 1 local_sync: 1
  checkpoints { dir: "/run" every_steps: 2 every_epochs: 1 every_minutes: 1 keep_max: 2 }
  callbacks { model_checkpoint { filepath: "/m.keras" save_best_only: true initial_value_threshold: 1 } }
  callbacks { early_stopping { min_delta: 0.1 patience: 1 baseline: 1 start_from_epoch: 1 } }
  callbacks { reduce_lr_on_plateau { factor: 0.5 patience: 1 min_delta: 0.1 cooldown: 1 min_lr: 0.1 } }
  callbacks { tensorboard { histogram_freq: 1 } }
  optimizer { adam { beta_1: 0.5 beta_2: 0.5 epsilon: 0.1 } learning_rate: 0.1 weight_decay: 0.1 clipvalue: 1 })";

constexpr char kSequences[] = R"(
  model {
    layers { name: "in" input { shape: 16 } }
    layers { embedding { input_dim: 100 output_dim: 8 } }
    layers { conv1d { filters: 8 kernel_size: 3 strides: 1 dilation_rate: 1 groups: 1 padding: SAME } }
    layers { max_pooling1d { pool_size: 2 strides: 2 } } layers { name: "x" average_pooling1d { pool_size: 2 strides: 2 } }
    layers { name: "m" multi_head_attention { num_heads: 2 key_dim: 4 value_dim: 4 dropout: 0.1 } inputs: ["x", "x"] }
    layers { dot { axes: 2 } inputs: ["m", "x"] }
    layers { name: "sum" operation { kind: ADD constant: [1, 2, 3, 4] constant_shape: 4 } }
    layers { operation { kind: CLIP low: -1 high: 2 } } layers { name: "running" operation { kind: CUMSUM axis: 1 } }
    layers { concatenate { axis: 1 } inputs: ["sum", "running"] }
    layers { slice { axes { begin: 1 end: 4 step: 1 } axes { begin: 3 step: -1 } } } layers { reduce { kind: MEAN axis: 1 keepdims: true } }
    layers { global_average_pooling1d {} }
    layers { dense { units: 4 activation: SOFTMAX } }
  }
  data { path: "/data" format: TFRECORD tfrecord { shape: 16 label_offset: 1 } }
  loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
  batch_size: 8 replicas: 4 )";

constexpr char kOutputs[] = R"(
  model {
    layers { name: "in" input { shape: 4 } } layers { name: "a" inputs: "in" dense { units: 1 } }
    layers { name: "b" inputs: "in" dense { units: 3 activation: SOFTMAX } }
    outputs: ["a", "b"]
  }
  data { path: "/data" format: CSV inputs { columns: ["0", "1", "2", "3"] } targets { output: "a" columns: "4" shape: 1 }
         targets { output: "b" } }
  outputs { output: "a" loss { kind: MEAN_SQUARED_ERROR } weight: 2 }
  outputs { output: "b" loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY } metrics { kind: TOP_K_ACCURACY k: 2 } }
  batch_size: 8 replicas: 4 optimizer { sgd {} })";

// Over kSequences.
constexpr const char* kChanges[] = {
    "optimizer { sgd { momentum: 0.5 } clipnorm: 1 } strategy: PARAMETER_SERVER staleness_bound: 2",
    "optimizer { adagrad { initial_accumulator_value: 0.5 epsilon: 0.1 } global_clipnorm: 1 }",
    "optimizer { rmsprop { rho: 0.5 momentum: 0.5 epsilon: 0.1 } ema { momentum: 0.5 overwrite_frequency: 2 } }",
    "optimizer { adamw { beta_1: 0.5 beta_2: 0.5 epsilon: 0.1 weight_decay: 0.1 } }",
    "optimizer { adadelta { rho: 0.5 epsilon: 0.1 } } data { targets { feature: 'y' shape: 1 } }",
    "optimizer { adamax { beta_1: 0.5 beta_2: 0.5 epsilon: 0.1 } } metrics { kind: MEAN_IOU }",
    "optimizer { nadam { beta_1: 0.5 beta_2: 0.5 epsilon: 0.1 } }",
    "optimizer { ftrl { initial_accumulator_value: 0.5 l1_regularization_strength: 0.1 } }",
    "optimizer { lion { beta_1: 0.5 beta_2: 0.5 } }",
    "optimizer { sgd {} } compute_dtype: FLOAT16 device: GPU loss_scaling { initial_scale: 2 dynamic_growth_steps: 2 }",
    "optimizer { sgd {} } backup_replicas: 1",
    "optimizer { sgd {} schedule { piecewise_constant_decay { boundaries: 1 values: [0.1, 0.2] } } }",
    "optimizer { sgd {} schedule { exponential_decay { decay_steps: 2 decay_rate: 0.5 } } }",
    "optimizer { sgd {} schedule { polynomial_decay { decay_steps: 2 end_learning_rate: 0.1 power: 2 } } }",
    "optimizer { sgd {} schedule { inverse_time_decay { decay_steps: 2 decay_rate: 0.5 } } }",
    "optimizer { sgd {} schedule { cosine_decay { decay_steps: 2 alpha: 0.5 warmup_steps: 2 warmup_target: 0.5 } } }",
    "optimizer { sgd {} schedule { cosine_decay_restarts { first_decay_steps: 2 t_mul: 2 m_mul: 2 alpha: 0.5 } } }",
};

// ---- reflection ----

struct Step {
  const FieldDescriptor* field;
  int index;  // -1: not repeated
};
using Path = std::vector<Step>;

Message* At(Message* message, const Path& path) {
  for (const Step& step : path) {
    const Reflection* reflection = message->GetReflection();
    message = step.index < 0 ? reflection->MutableMessage(message, step.field)
                             : reflection->MutableRepeatedMessage(message, step.field, step.index);
  }
  return message;
}

bool IsNumber(const FieldDescriptor* field) {
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_UINT64:
    case FieldDescriptor::CPPTYPE_FLOAT:
    case FieldDescriptor::CPPTYPE_DOUBLE: return true;
    default: return false;
  }
}

// `which`: of 0, -1, the largest, the smallest, infinity, NaN. False: the type has no such number.
constexpr const char* kValues[] = {"0", "-1", "max", "min", "inf", "nan"};
template <typename T>
bool ValueOf(size_t which, T* value) {
  using Limits = std::numeric_limits<T>;
  const T all[] = {T(0), T(-1), Limits::max(), Limits::lowest(), Limits::infinity(), Limits::quiet_NaN()};
  *value = all[which];
  return which < 4 ? which == 0 || which == 2 || Limits::is_signed : Limits::has_infinity;
}

template <typename T, auto Set, auto SetRepeated, auto Add>
bool PutAs(Message* m, const FieldDescriptor* field, size_t which) {
  T value;
  if (!ValueOf(which, &value)) return false;
  const Reflection* reflection = m->GetReflection();
  if (!field->is_repeated()) {
    (reflection->*Set)(m, field, value);
  } else if (reflection->FieldSize(*m, field) == 0) {
    (reflection->*Add)(m, field, value);
  } else {
    (reflection->*SetRepeated)(m, field, 0, value);
  }
  return true;
}

bool PutNumber(Message* m, const FieldDescriptor* field, size_t which) {
  using R = Reflection;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return PutAs<int32_t, &R::SetInt32, &R::SetRepeatedInt32, &R::AddInt32>(m, field, which);
    case FieldDescriptor::CPPTYPE_INT64:
      return PutAs<int64_t, &R::SetInt64, &R::SetRepeatedInt64, &R::AddInt64>(m, field, which);
    case FieldDescriptor::CPPTYPE_UINT32:
      return PutAs<uint32_t, &R::SetUInt32, &R::SetRepeatedUInt32, &R::AddUInt32>(m, field, which);
    case FieldDescriptor::CPPTYPE_UINT64:
      return PutAs<uint64_t, &R::SetUInt64, &R::SetRepeatedUInt64, &R::AddUInt64>(m, field, which);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return PutAs<float, &R::SetFloat, &R::SetRepeatedFloat, &R::AddFloat>(m, field, which);
    default: return PutAs<double, &R::SetDouble, &R::SetRepeatedDouble, &R::AddDouble>(m, field, which);
  }
}

std::string NumberText(const Message& message, const FieldDescriptor* field) {
  std::string text;
  TextFormat::PrintFieldValueToString(message, field, field->is_repeated() ? 0 : -1, &text);
  return text;
}

std::string NameOf(const FieldDescriptor* field) {
  return absl::StrCat(field->containing_type()->name(), ".", field->name());
}

// The resolved message at `path`: a layer is resolved in the graph, all else in the spec.
Message* Resolved(CheckedJob* job, v1::Layer* layer, const Path& path) {
  if (path.size() < 2 || path[0].field->name() != "model") return At(&job->spec, path);
  *layer = job->graph.nodes()[static_cast<size_t>(path[1].index)].layer;
  return At(layer, Path(path.begin() + 2, path.end()));
}

void TryNumber(const v1::JobSpec& good, const Path& path, const FieldDescriptor* field, size_t which) {
  v1::JobSpec spec = good;
  Message* message = At(&spec, path);
  if (!PutNumber(message, field, which)) return;
  SCOPED_TRACE(absl::StrCat(NameOf(field), ": ", kValues[which]));
  absl::StatusOr<CheckedJob> checked = CheckJob(spec);
  if (!checked.ok()) {
    EXPECT_EQ(checked.status().code(), absl::StatusCode::kInvalidArgument);
    const std::string error(checked.status().message());
    // If the number makes a layer too large, the error names what is too large.
    const bool too_large = which == 2 && !path.empty() && path[0].field->name() == "model";
    const bool named =
        absl::StrContains(error, field->name()) ||
        (too_large && (absl::StrContains(error, "layer \"") || absl::StartsWith(error, "partition_bytes: ") ||
                       absl::StartsWith(error, "model: ")));
    EXPECT_TRUE(named) << error;
    return;
  }
  v1::Layer layer;
  const bool stands_for_another = which == 1 && (kNegativeStandsForAnother.contains(NameOf(field)) ||
                                                 kFeatureNegativesStandForAnother.contains(NameOf(field)) ||
                                                 kMoveNegativesStandForAnother.contains(NameOf(field)));
  if (!stands_for_another) {
    EXPECT_EQ(NumberText(*Resolved(&*checked, &layer, path), field), NumberText(*message, field))
        << "it is taken for another number";
  }
  const std::string name = NameOf(field);
  const bool zero = kZeroIsTaken.contains(name) || kFeatureZeros.contains(name) || kRecurrentZeros.contains(name) ||
                    kCategoryZeros.contains(name) || kTrainingZeros.contains(name) || kMoveZeros.contains(name);
  const bool negative = kNegativeIsTaken.contains(name) || kFeatureNegatives.contains(name) ||
                        kRecurrentNegatives.contains(name) || kCategoryNegatives.contains(name) ||
                        kTrainingNegatives.contains(name) || kMoveNegatives.contains(name);
  const bool known = which == 0 ? zero : which == 1 ? negative : which > 3 ? kInfinityIsTaken.contains(name) : true;
  EXPECT_TRUE(known)
      << "it is taken: refuse it, or say what it means, in the field's comment and in job_number_tables.h";
}

void TryAll(const v1::JobSpec& good, const Message& message, Path path, std::set<std::string>* seen) {
  const Descriptor* type = message.GetDescriptor();
  const Reflection* reflection = message.GetReflection();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    if (IsNumber(field)) {
      seen->insert(NameOf(field));
      for (size_t which = 0; which < std::size(kValues); ++which) TryNumber(good, path, field, which);
    }
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const int count =
        field->is_repeated() ? reflection->FieldSize(message, field) : reflection->HasField(message, field);
    for (int k = 0; k < count; ++k) {
      path.push_back({field, field->is_repeated() ? k : -1});
      TryAll(good,
             field->is_repeated() ? reflection->GetRepeatedMessage(message, field, k)
                                  : reflection->GetMessage(message, field),
             path, seen);
      path.pop_back();
    }
  }
}

void AddNumbers(const Descriptor* type, std::set<const Descriptor*>* known, std::set<std::string>* all) {
  if (!known->insert(type).second) return;
  for (int i = 0; i < type->field_count(); ++i) {
    if (IsNumber(type->field(i))) all->insert(NameOf(type->field(i)));
    if (type->field(i)->message_type() != nullptr) AddNumbers(type->field(i)->message_type(), known, all);
  }
}

TEST(JobNumbers, NoneIsTakenForAnother) {
  std::vector<v1::JobSpec> jobs = {
      FromText<v1::JobSpec>(kPictures),     FromText<v1::JobSpec>(kVolumes),     FromText<v1::JobSpec>(kFeatureJob),
      FromText<v1::JobSpec>(kRecurrentJob), FromText<v1::JobSpec>(kFilmJob),     FromText<v1::JobSpec>(kCategoryJob),
      FromText<v1::JobSpec>(kOutputs),      FromText<v1::JobSpec>(kExternalJob), FromText<v1::JobSpec>(kMetricLearning),
      FromText<v1::JobSpec>(kMixed),        FromText<v1::JobSpec>(kTextJob),     FromText<v1::JobSpec>(kMoveJob)};
  for (const char* change : kChanges) jobs.push_back(ChangedJob(kSequences, change));
  for (const char* change : kTrainingChanges) jobs.push_back(ChangedJob(kSequences, change));
  std::set<std::string> seen;
  for (const v1::JobSpec& good : jobs) {
    ASSERT_TRUE(CheckJob(good).ok()) << CheckJob(good).status() << good.ShortDebugString();
    TryAll(good, good, {}, &seen);
  }
  std::set<std::string> all;
  std::set<const Descriptor*> known = {v1::ReadyMade::descriptor()};  // expanded before the check: below
  AddNumbers(v1::JobSpec::descriptor(), &known, &all);
  EXPECT_THAT(seen, ::testing::ContainerEq(all)) << "a message is in none of the jobs above: add it";
}

TEST(JobNumbers, OfAReadyMadeModel) {
  for (const int32_t classes : {0, -1, std::numeric_limits<int32_t>::max()}) {
    v1::ReadyMade model;
    model.set_name("resnet18");
    model.set_classes(classes);
    EXPECT_THAT(std::string(MakeReadyMade(model).status().message()),
                HasSubstr(absl::StrCat("classes: ", classes, " is outside")));
  }
}

TEST(JobNumbers, NonsenseIsAnsweredWithTheDefaultAndWhatToGive) {
  v1::JobSpec spec = FromText<v1::JobSpec>(absl::StrCat(kSequences, kChanges[0]));
  spec.set_epochs(0);
  EXPECT_EQ(CheckJob(spec).status().message(), "epochs: 0 is not allowed; leave it out for 1, or give at least 1");
}

}  // namespace
}  // namespace cairn
