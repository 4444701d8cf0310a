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
#include "tests/unit/model/model_text.h"
#include "tests/unit/model/numbered_jobs.h"

namespace cairn {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::TextFormat;
using ::testing::HasSubstr;

// 0 is a value of its own, or stands for what the comment of the field says.
const std::set<std::string> kZeroIsTaken = {"JobSpec.staleness_bound",
                                            "JobSpec.seed",
                                            "JobSpec.validation_freq_steps",
                                            "JobSpec.backups",
                                            "JobSpec.max_workers",
                                            "JobSpec.priority",
                                            "JobSpec.backup_replicas",
                                            "ClassWeight.class_id",
                                            "ClassWeight.weight",
                                            "Data.validation_split",
                                            "Data.test_split",
                                            "Data.split_seed",
                                            "Data.image_height",
                                            "Data.image_width",
                                            "Data.prefetch",
                                            "TfRecord.label_offset",
                                            "RandomRotation.factor",
                                            "RandomRotation.fill_value",
                                            "RandomZoom.height_factor",
                                            "RandomZoom.width_factor",
                                            "RandomZoom.fill_value",
                                            "RandomTranslation.height_factor",
                                            "RandomTranslation.width_factor",
                                            "RandomTranslation.fill_value",
                                            "RandomCrop.padding",
                                            "RandomBrightness.factor",
                                            "RandomContrast.factor",
                                            "Cutout.fill_value",
                                            "Loss.label_smoothing",
                                            "Optimizer.learning_rate",
                                            "Optimizer.weight_decay",
                                            "Ema.momentum",
                                            "Ema.overwrite_frequency",
                                            "Sgd.momentum",
                                            "Adagrad.initial_accumulator_value",
                                            "Adagrad.epsilon",
                                            "RmsProp.rho",
                                            "RmsProp.momentum",
                                            "RmsProp.epsilon",
                                            "Adam.beta_1",
                                            "Adam.beta_2",
                                            "Adam.epsilon",
                                            "AdamW.beta_1",
                                            "AdamW.beta_2",
                                            "AdamW.epsilon",
                                            "AdamW.weight_decay",
                                            "PiecewiseConstantDecay.boundaries",
                                            "PiecewiseConstantDecay.values",
                                            "PolynomialDecay.end_learning_rate",
                                            "CosineDecay.alpha",
                                            "CosineDecay.warmup_steps",
                                            "CosineDecay.warmup_target",
                                            "CosineDecayRestarts.alpha",
                                            "Initializer.value",
                                            "Initializer.minval",
                                            "Initializer.maxval",
                                            "Initializer.mean",
                                            "Initializer.stddev",
                                            "Regularizer.l1",
                                            "Regularizer.l2",
                                            "Rescaling.offset",
                                            "BatchNormalization.momentum",
                                            "ActivationLayer.negative_slope",
                                            "ActivationLayer.alpha",
                                            "Dropout.rate",
                                            "ZeroPadding2D.padding",
                                            "Cropping1D.cropping",
                                            "Resizing.fill_value",
                                            "Cropping2D.cropping",
                                            "Cropping3D.cropping",
                                            "ZeroPadding1D.padding",
                                            "ZeroPadding3D.padding",
                                            "Conv1DTranspose.output_padding",
                                            "Conv2DTranspose.output_padding",
                                            "Conv3DTranspose.output_padding",
                                            "SpatialDropout2D.rate",
                                            "MultiHeadAttention.dropout",
                                            "ModelCheckpoint.initial_value_threshold",
                                            "EarlyStopping.min_delta",
                                            "EarlyStopping.patience",
                                            "EarlyStopping.baseline",
                                            "EarlyStopping.start_from_epoch",
                                            "ReduceLrOnPlateau.patience",
                                            "ReduceLrOnPlateau.min_delta",
                                            "ReduceLrOnPlateau.cooldown",
                                            "ReduceLrOnPlateau.min_lr",
                                            "TensorBoard.histogram_freq"};

const std::set<std::string> kNegativeIsTaken = {"Dot.axes",
                                                "JobSpec.priority",
                                                "TfRecord.label_offset",
                                                "RandomRotation.factor",
                                                "RandomRotation.fill_value",
                                                "RandomZoom.height_factor",
                                                "RandomZoom.width_factor",
                                                "RandomZoom.fill_value",
                                                "RandomTranslation.height_factor",
                                                "RandomTranslation.width_factor",
                                                "RandomTranslation.fill_value",
                                                "RandomBrightness.factor",
                                                "Cutout.fill_value",
                                                "Initializer.value",
                                                "Initializer.minval",
                                                "Initializer.mean",
                                                "Rescaling.scale",
                                                "Rescaling.offset",
                                                "ActivationLayer.negative_slope",
                                                "ActivationLayer.alpha",
                                                "GroupNormalization.groups",
                                                "Resizing.fill_value",
                                                "Reshape.target_shape",
                                                "ModelCheckpoint.initial_value_threshold",
                                                "EarlyStopping.baseline"};

const std::set<std::string> kNegativeStandsForAnother = {"Dot.axes", "GroupNormalization.groups",
                                                         "Reshape.target_shape"};  // as in Keras

const std::set<std::string> kInfinityIsTaken = {"ModelCheckpoint.initial_value_threshold"};

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

// What became of the message at `path`: a layer is resolved in the graph, all else in the spec.
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
    // Of a layer that becomes too large what is too large is named.
    const bool too_large = which == 2 && !path.empty() && path[0].field->name() == "model";
    const bool named =
        absl::StrContains(error, field->name()) ||
        (too_large && (absl::StrContains(error, "layer \"") || absl::StartsWith(error, "partition_bytes: ")));
    EXPECT_TRUE(named) << error;
    return;
  }
  v1::Layer layer;
  const bool stands_for_another = which == 1 && kNegativeStandsForAnother.contains(NameOf(field));
  if (!stands_for_another) {
    EXPECT_EQ(NumberText(*Resolved(&*checked, &layer, path), field), NumberText(*message, field))
        << "it is taken for another number";
  }
  const bool known = which == 0   ? kZeroIsTaken.contains(NameOf(field))
                     : which == 1 ? kNegativeIsTaken.contains(NameOf(field))
                     : which > 3  ? kInfinityIsTaken.contains(NameOf(field))
                                  : true;
  EXPECT_TRUE(known) << "it is taken: refuse it, or say what it means, in the field's comment and in the tables above";
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
  std::vector<v1::JobSpec> jobs = {FromText<v1::JobSpec>(kPictures), FromText<v1::JobSpec>(kVolumes)};
  for (const char* change : kChanges) jobs.push_back(FromText<v1::JobSpec>(absl::StrCat(kSequences, change)));
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
