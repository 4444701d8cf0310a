// Goal: --set reaches every kind of field of a job; a wrong one is refused with what would be right, and changes
// nothing.
#include "client/cli/set_field.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <memory>

#include "cairn/v1/job.pb.h"
#include "cairn/v1/optimizer.pb.h"
#include "common/model/nearest.h"

namespace cairn {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;

constexpr char kJob[] = R"(
  name: "a"
  model {
    layers { input { shape: [28, 28, 1] } }
    layers { conv2d { filters: 8 kernel_size: [3, 3] } }
    layers { dense { units: 10 } }
  }
  data { path: "/x" }
  optimizer { adam { beta_1: 0.9 } learning_rate: 0.001 }
  metrics { kind: ACCURACY }
)";

v1::JobSpec Parse(const std::string& text) {
  v1::JobSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec)) << text;
  return spec;
}

struct Good {
  const char* setting;
  const char* means;  // merged into the job, or "=..." as the whole of what is compared
};

class SetGood : public ::testing::TestWithParam<Good> {};

TEST_P(SetGood, IsTheSameAsWritingIt) {
  v1::JobSpec got = Parse(kJob);
  ASSERT_TRUE(ApplySetting(GetParam().setting, &got).ok()) << ApplySetting(GetParam().setting, &got);
  v1::JobSpec want = Parse(kJob);
  ASSERT_TRUE(google::protobuf::TextFormat::MergeFromString(GetParam().means, &want));
  EXPECT_TRUE(MessageDifferencer::Equals(got, want)) << got.DebugString();
}

INSTANTIATE_TEST_SUITE_P(
    Table, SetGood,
    ::testing::Values(Good{"name=b c=d", "name: 'b c=d'"}, Good{"name=", "name: ''"}, Good{"epochs=7", "epochs: 7"},
                      Good{"seed=18446744073709551615", "seed: 18446744073709551615"},
                      Good{"priority=-3", "priority: -3"}, Good{"partition_bytes=4096", "partition_bytes: 4096"},
                      Good{"staleness_bound=0", "staleness_bound: 0"}, Good{"fsync=true", "fsync: true"},
                      Good{"data.shuffle=false", "data { shuffle: false }"},
                      Good{"data.path=/y/z", "data { path: '/y/z' }"},
                      Good{"data.validation_split=0.25", "data { validation_split: 0.25 }"},
                      Good{"strategy=parameter_server", "strategy: PARAMETER_SERVER"},
                      Good{"strategy=PARAMETER-server", "strategy: PARAMETER_SERVER"},
                      Good{"data.format=idx", "data { format: IDX }"},
                      Good{"optimizer.adam.beta_1=0.8", "optimizer { adam { beta_1: 0.8 } }"},
                      Good{"optimizer.learning_rate=1e-2", "optimizer { learning_rate: 0.01 }"},
                      Good{"optimizer.sgd.momentum=0.9", "optimizer { sgd { momentum: 0.9 } }"},
                      Good{"optimizer.sgd={}", "optimizer { sgd { } }"},
                      Good{"optimizer.sgd={momentum: 0.5 nesterov: true}",
                           "optimizer { sgd { momentum: 0.5 nesterov: true } }"},
                      Good{"metrics[..].kind=TOP_K_ACCURACY", "metrics { kind: TOP_K_ACCURACY }"},
                      Good{"metrics[..]={kind: TOP_K_ACCURACY k: 3}", "metrics { kind: TOP_K_ACCURACY k: 3 }"},
                      Good{"model.layers[..].dropout.rate=0.5", "model { layers { dropout { rate: 0.5 } } }"}));

TEST(SetField, ElementsOfLists) {
  v1::JobSpec spec = Parse(kJob);
  ASSERT_TRUE(ApplySetting("model.layers[2].dense.units=64", &spec).ok());
  ASSERT_TRUE(ApplySetting("model.layers[0].input.shape=32,32, 3", &spec).ok());
  ASSERT_TRUE(ApplySetting("model.layers[1].conv2d.kernel_size[1]=5", &spec).ok());
  ASSERT_TRUE(ApplySetting("model.layers[1].conv2d.strides[..]=2", &spec).ok());
  ASSERT_TRUE(ApplySetting("model.layers[2].inputs=a,b", &spec).ok());
  ASSERT_TRUE(ApplySetting("metrics[0].kind=mean_absolute_error", &spec).ok());
  EXPECT_EQ(spec.model().layers(2).dense().units(), 64);
  EXPECT_THAT(spec.model().layers(0).input().shape(), ::testing::ElementsAre(32, 32, 3));
  EXPECT_THAT(spec.model().layers(1).conv2d().kernel_size(), ::testing::ElementsAre(3, 5));
  EXPECT_THAT(spec.model().layers(1).conv2d().strides(), ::testing::ElementsAre(2));
  EXPECT_THAT(spec.model().layers(2).inputs(), ::testing::ElementsAre("a", "b"));
  EXPECT_EQ(spec.metrics(0).kind(), v1::Metric::MEAN_ABSOLUTE_ERROR);
  ASSERT_TRUE(ApplySetting("model.layers[0].input.shape=[8, 9]", &spec).ok());
  EXPECT_THAT(spec.model().layers(0).input().shape(), ::testing::ElementsAre(8, 9));
  ASSERT_TRUE(ApplySetting("model.layers[0].input.shape=[]", &spec).ok());
  EXPECT_EQ(spec.model().layers(0).input().shape_size(), 0);
  ASSERT_TRUE(ApplySetting("model.layers[0].input.shape=", &spec).ok());
  EXPECT_EQ(spec.model().layers(0).input().shape_size(), 0);
}

// As Keras' compile() takes them.
TEST(SetField, NamesAsKerasSpellsThem) {
  v1::JobSpec spec = Parse(kJob);
  const auto set = [&spec](const char* setting) {
    const absl::Status status = ApplySetting(setting, &spec);
    EXPECT_TRUE(status.ok()) << status;
  };
  set("optimizer=RMSprop");
  EXPECT_TRUE(spec.optimizer().has_rmsprop());
  EXPECT_FALSE(spec.optimizer().has_learning_rate()) << "it replaces what was there";
  set("optimizer=adam");
  EXPECT_TRUE(spec.optimizer().has_adam());
  const std::pair<const char*, v1::Loss::Kind> losses[] = {
      {"loss=mse", v1::Loss::MEAN_SQUARED_ERROR},
      {"loss=sparse_categorical_crossentropy", v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY},
      {"loss=SparseCategoricalCrossentropy", v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY},
      {"loss.kind=KLDivergence", v1::Loss::KL_DIVERGENCE},
      {"loss=kld", v1::Loss::KL_DIVERGENCE},
      {"loss=log_cosh", v1::Loss::LOG_COSH},
      {"loss=BCE", v1::Loss::BINARY_CROSSENTROPY},
  };
  for (const auto& [setting, kind] : losses) {
    set(setting);
    EXPECT_EQ(spec.loss().kind(), kind) << setting;
  }
  set("metrics=acc,AUC, MeanIoU");
  ASSERT_EQ(spec.metrics_size(), 3);
  EXPECT_EQ(spec.metrics(0).kind(), v1::Metric::ACCURACY);
  EXPECT_EQ(spec.metrics(1).kind(), v1::Metric::AUC);
  EXPECT_EQ(spec.metrics(2).kind(), v1::Metric::MEAN_IOU);
  set("metrics[..]=logcosh");
  EXPECT_EQ(spec.metrics(3).kind(), v1::Metric::LOG_COSH_ERROR);
  set("metrics=");
  EXPECT_EQ(spec.metrics_size(), 0);
  set("strategy=MultiWorkerMirroredStrategy");
  EXPECT_EQ(spec.strategy(), v1::MULTI_WORKER_MIRRORED);
  set("strategy=ParameterServerStrategy");
  EXPECT_EQ(spec.strategy(), v1::PARAMETER_SERVER);
  set("optimizer={sgd { momentum: 0.5 }}");
  EXPECT_EQ(spec.optimizer().sgd().momentum(), 0.5f);
  for (const char* bad : {"optimizer=adamm", "loss=strategy", "metrics=acc,x", "strategy=Strategy", "loss="}) {
    EXPECT_EQ(ApplySetting(bad, &spec).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(SetField, ChoosingAnotherOptimizerDropsTheFirst) {
  v1::JobSpec spec = Parse(kJob);
  ASSERT_TRUE(ApplySetting("optimizer.rmsprop.rho=0.8", &spec).ok());
  EXPECT_FALSE(spec.optimizer().has_adam());
  EXPECT_FLOAT_EQ(spec.optimizer().learning_rate(), 0.001f);
}

struct Bad {
  const char* setting;
  std::vector<const char*> says;
};

class SetBad : public ::testing::TestWithParam<Bad> {};

TEST_P(SetBad, SaysWhatIsWrongAndChangesNothing) {
  v1::JobSpec spec = Parse(kJob);
  const absl::Status status = ApplySetting(GetParam().setting, &spec);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const char* text : GetParam().says) EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  EXPECT_TRUE(MessageDifferencer::Equals(spec, Parse(kJob)));
}

INSTANTIATE_TEST_SUITE_P(
    Table, SetBad,
    ::testing::Values(Bad{"epochs", {"--set epochs", "path.to.field=value"}}, Bad{"=3", {"path.to.field=value"}},
                      Bad{"epoch=3", {"JobSpec has no field \"epoch\"", "did you mean \"epochs\"?"}},
                      Bad{"optimizer.adam.beta1=0.8", {"Adam has no field \"beta1\"", "did you mean \"beta_1\"?"}},
                      Bad{"zzzzzz=1", {"no field \"zzzzzz\" (it has name, model"}},
                      Bad{"model..name=1", {"a field's name is missing"}},
                      Bad{"epochs=many", {"--set epochs=many", "\"many\" is not a whole number"}},
                      Bad{"epochs=1.5", {"not a whole number"}},
                      Bad{"epochs=3000000000", {"from -2147483648 to 2147483647"}},
                      Bad{"seed=-1", {"not a whole number from 0"}},
                      Bad{"optimizer.learning_rate=fast", {"\"fast\" is not a number"}},
                      Bad{"fsync=maybe", {"neither true nor false"}},
                      Bad{"strategy=fastest", {"\"fastest\" is not one of", "MULTI_WORKER_MIRRORED"}},
                      Bad{"model.layers.dense.units=3", {"layers is a list", "layers[0] or layers[..]"}},
                      Bad{"model.layers[9].dense.units=3", {"layers[9] does not exist", "the last one is layers[2]"}},
                      Bad{"model.layers[2].inputs[0]=a", {"inputs is empty", "inputs[..]"}},
                      Bad{"model.layers[-1].dense.units=3", {"\"[-1]\" is not an index"}},
                      Bad{"model.layers[2.dense.units=3", {"closing bracket"}},
                      Bad{"epochs[0]=3", {"epochs is not a list"}}, Bad{"epochs.x=3", {"epochs is not a message"}},
                      Bad{"optimizer.adam=fast", {"adam is a message", "adam.FIELD"}},
                      Bad{"optimizer.adam={beta: 1}", {"adam:1:", "no field named \"beta\""}},
                      Bad{"model.layers[0].input.shape=1,x", {"\"x\" is not a whole number"}},
                      Bad{"metrics={}", {"metrics is a list"}}));

TEST(SetField, VeryLongPathsAreRefused) {
  v1::JobSpec spec;
  std::string path = "a";
  for (int i = 0; i < 10000; ++i) path += ".a";
  EXPECT_FALSE(ApplySetting(path + "=1", &spec).ok());
}

TEST(Nearest, FindsTheLikelyWordOrNone) {
  EXPECT_EQ(Nearest("learning_rat", {"seed", "learning_rate"}), "learning_rate");
  EXPECT_EQ(Nearest("Seed", {"seed", "learning_rate"}), "seed");
  EXPECT_EQ(Nearest("qqqq", {"seed", "learning_rate"}), "");
  EXPECT_EQ(Nearest("x", {}), "");
}

TEST(Set, TextThatIsNotUtf8IsRefused) {
  v1::JobSpec spec;
  EXPECT_THAT(ApplySetting("name=gr\xfcn", &spec).message(), HasSubstr("is not UTF-8"));
  EXPECT_TRUE(ApplySetting("name=gr\xc3\xbcn", &spec).ok());
}

}  // namespace
}  // namespace cairn
