// Goal: the outputs of a prediction come in order and each once, whatever happens to workers; a slow caller does not
// make workers compute ahead without bound; other weights and data are checked and passed on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "absl/strings/str_cat.h"
#include "tests/unit/coordinator/cluster.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

constexpr ReplyToken kCall{90001};

v1::EvaluateRequest Request(uint64_t id) {
  v1::EvaluateRequest request;
  request.mutable_job()->set_job_id(id);
  return request;
}

void Predict(Cluster& c, const v1::EvaluateRequest& request, ReplyToken token = kCall) {
  c.Do(PredictJob{token, request, c.clock().Now() + absl::Minutes(10)});
}

// Checks that every example came once, in order, with its own outputs.
void ExpectWhole(Cluster& c, uint64_t examples) {
  uint64_t next = 0;
  for (const v1::PredictResponse& part : c.predictions[kCall]) {
    ASSERT_EQ(part.first_example(), next);
    ASSERT_EQ(part.outputs().size(), part.examples() * 4 * sizeof(float));
    EXPECT_LE(part.ByteSizeLong(), size_t{1} << 20) << "with the names of the inputs";
    ASSERT_EQ(static_cast<uint64_t>(part.inputs_size()), part.examples());
    EXPECT_EQ(part.split(), v1::TEST);
    for (uint64_t e = 0; e < part.examples(); ++e) {
      float first;
      std::memcpy(&first, part.outputs().data() + e * 4 * sizeof(float), sizeof(first));
      ASSERT_EQ(first, static_cast<float>(next + e));
      ASSERT_EQ(part.inputs(static_cast<int>(e)), absl::StrCat("line ", next + e));
    }
    next += part.examples();
  }
  EXPECT_EQ(next, examples);
  ASSERT_NE(c.ReplyTo(kCall), nullptr);
  EXPECT_TRUE(c.ReplyTo(kCall)->status.ok()) << c.ReplyTo(kCall)->status;
}

TEST(ClusterPredict, OutputsComeInOrder) {
  Cluster c(1, 3);
  c.data.set_test_examples(101);
  const uint64_t id = c.SubmitOk(c.Spec());
  Predict(c, Request(id));
  c.Settle();
  ExpectWhole(c, 101);
  EXPECT_GE(c.predictions[kCall].size(), 3u) << "every worker has a part";
}

// The last shard is answered first; nothing is sent to the caller before the first.
TEST(ClusterPredict, AnswersInAnyOrder) {
  Cluster c(1, 2);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.answer_evaluations = false;
  Predict(c, Request(id));
  c.Settle();
  std::vector<std::pair<std::string, v1::EvaluateShard>> shards;
  for (const char* worker : {"worker-0", "worker-1"}) {
    for (const v1::EvaluateShard& shard : std::exchange(c.node(worker).shards, {})) shards.emplace_back(worker, shard);
  }
  std::sort(shards.begin(), shards.end(), [](auto& a, auto& b) { return a.second.shard() > b.second.shard(); });
  ASSERT_GE(shards.size(), 2u);
  for (const auto& [worker, shard] : shards) {
    EXPECT_TRUE(c.predictions[kCall].empty());
    for (const v1::NodeMessage& message : c.Outputs(shard, 16, 4)) c.Say(c.node(worker), message);
  }
  c.answer_evaluations = true;
  c.Settle();
  ExpectWhole(c, 16);
}

// A worker is lost with its shards, one of which was answered and another one half answered.
TEST(ClusterPredict, ALostWorkersShardsAreComputedAgain) {
  Cluster c(1, 2);
  c.data.set_test_examples(60);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.answer_evaluations = false;
  Predict(c, Request(id));
  c.Settle();
  const std::vector<v1::EvaluateShard> held = c.node("worker-0").shards;
  ASSERT_GE(held.size(), 2u);
  for (const v1::NodeMessage& message : c.Outputs(held[0], 60, 4)) c.Say(c.node("worker-0"), message);
  c.Say(c.node("worker-0"), c.Outputs(held[1], 60, 4)[0]);
  c.Kill(c.node("worker-0"));
  c.answer_evaluations = true;
  c.Settle();
  ExpectWhole(c, 60);
}

TEST(ClusterPredict, ASlowCallerStopsTheComputing) {
  Cluster c(1, 2);
  c.data.set_test_examples(1 << 20);  // 16 blocks of 1 MiB
  const uint64_t id = c.SubmitOk(c.Spec());
  c.take_predictions = false;
  Predict(c, Request(id));
  c.Pass(absl::Seconds(2));
  EXPECT_EQ(c.predictions[kCall].size(), 1u) << "one block on its way";
  EXPECT_LE(c.node("worker-0").commands + c.node("worker-1").commands, 16) << "shards of the window alone";
  c.ClearCommands();
  c.Pass(absl::Seconds(2));
  EXPECT_EQ(c.node("worker-0").commands + c.node("worker-1").commands, 0) << "computed ahead without bound";
  c.Do(PredictionTaken{kCall});
  c.Settle();
  EXPECT_EQ(c.node("worker-0").commands + c.node("worker-1").commands, 1) << "one taken, one more computed";
  c.take_predictions = true;
  c.Do(PredictionTaken{kCall});
  c.Settle();
  ExpectWhole(c, 1 << 20);
}

TEST(ClusterPredict, ACallerThatIsGoneIsForgotten) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.take_predictions = false;
  Predict(c, Request(id));
  c.Settle();
  c.Do(PredictionGone{kCall});
  c.Do(PredictionTaken{kCall});
  c.Settle();
  EXPECT_EQ(c.predictions[kCall].size(), 1u);
  EXPECT_EQ(c.ReplyTo(kCall), nullptr);
}

TEST(ClusterPredict, OutputsThatDoNotFitAreRefused) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.answer_evaluations = false;
  const std::vector<std::function<void(v1::PredictBlock&)>> faults = {
      [](v1::PredictBlock& block) { block.set_outputs("short"); },
      [](v1::PredictBlock& block) { block.mutable_inputs()->RemoveLast(); },
      [](v1::PredictBlock& block) { block.set_inputs(0, std::string((1 << 20) + 529, 'n')); },
  };
  for (size_t fault = 0; fault < faults.size(); ++fault) {
    const ReplyToken call{90001 + fault};
    Predict(c, Request(id), call);
    c.Settle();
    for (const v1::EvaluateShard& shard : std::exchange(c.node("worker-0").shards, {})) {
      std::vector<v1::NodeMessage> messages = c.Outputs(shard, 16, 4);
      faults[fault](*messages[0].mutable_predicted());
      for (const v1::NodeMessage& message : messages) c.Say(c.node("worker-0"), message);
    }
    c.Settle();
    ASSERT_NE(c.ReplyTo(call), nullptr) << fault;
    EXPECT_EQ(c.ReplyTo(call)->status.message(), "worker \"worker-0\": it sent no outputs") << fault;
    EXPECT_TRUE(c.predictions[call].empty()) << fault;
  }
}

// An answer holds all outputs of its examples, whichever of them is the last.
TEST(ClusterPredict, AllOutputsCount) {
  Cluster c(1, 1);
  v1::JobSpec spec = c.Spec();
  v1::Layer& wide = *spec.mutable_model()->add_layers();
  wide.set_name("wide");
  wide.mutable_repeat_vector()->set_n(100'000);
  v1::Layer& last = *spec.mutable_model()->add_layers();
  last.set_name("last");
  last.add_inputs(spec.model().layers(0).name().empty() ? "input_layer" : spec.model().layers(0).name());
  last.mutable_dense()->set_units(1);
  for (const char* name : {"wide", "last"}) spec.mutable_model()->add_outputs(name);
  spec.clear_loss();
  spec.clear_metrics();
  spec.add_outputs()->set_output("last");
  spec.mutable_outputs(0)->mutable_loss()->set_kind(v1::Loss::MEAN_SQUARED_ERROR);
  const uint64_t id = c.SubmitOk(spec);
  Predict(c, Request(id));
  c.Settle();
  ASSERT_NE(c.ReplyTo(kCall), nullptr);
  EXPECT_THAT(std::string(c.ReplyTo(kCall)->status.message()),
              HasSubstr("the outputs of one example are 1600004 bytes (of 2 outputs), more than the 1048576"));
}

// The names of files count too, and are longer than those of lines.
TEST(ClusterPredict, BlocksOfFilesHaveFewerExamples) {
  Cluster c(1, 1);
  v1::EvaluateRequest request = Request(c.SubmitOk(c.Spec()));
  c.data.set_test_examples(1 << 14);
  c.data.set_format(v1::Data::IMAGE_FOLDER);
  request.mutable_data()->set_path("/data/pictures");
  Predict(c, request);
  c.Settle();
  ExpectWhole(c, 1 << 14);
  for (const v1::PredictResponse& part : c.predictions[kCall])
    EXPECT_LE(part.examples() * (4 * sizeof(float) + 528), size_t{1} << 20);
}

// Without a split that is named: the test split, or the only one that there is.
TEST(ClusterPredict, TheOnlySplitOfOtherDataIsTaken) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(c.Spec());
  v1::EvaluateRequest request = Request(id);
  request.mutable_data()->set_path("/data/other.csv");
  c.data.set_train_examples(24);
  c.data.set_validation_examples(0);
  c.data.set_test_examples(0);
  c.answer_inspections = false;
  Predict(c, request);
  c.Settle();
  ASSERT_EQ(c.node("worker-0").inspections.size(), 1u);
  EXPECT_TRUE(c.node("worker-0").inspections[0].to_predict());
  c.answer_inspections = true;
  c.Pass(absl::Milliseconds(100));
  ASSERT_FALSE(c.predictions[kCall].empty());
  EXPECT_EQ(c.predictions[kCall][0].split(), v1::TRAIN);

  c.Do(EvaluateJob{ReplyToken{90002}, request, c.clock().Now() + absl::Minutes(10)});
  c.Settle();
  ASSERT_NE(c.ReplyTo(ReplyToken{90002}), nullptr);
  ASSERT_TRUE(c.ReplyTo(ReplyToken{90002})->status.ok()) << c.ReplyTo(ReplyToken{90002})->status;
  EXPECT_EQ(std::get<v1::EvaluateResponse>(c.ReplyTo(ReplyToken{90002})->body).split(), v1::TRAIN);

  request.set_split(v1::TEST);  // one that is named is not replaced
  Predict(c, request, ReplyToken{90003});
  c.Settle();
  ASSERT_NE(c.ReplyTo(ReplyToken{90003}), nullptr);
  EXPECT_EQ(c.ReplyTo(ReplyToken{90003})->status.message(),
            "the data at /data/other.csv have no test split; use --split train");
}

TEST(ClusterPredict, OtherDataAreLookedAtFirst) {
  Cluster c(1, 2);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.data.set_test_examples(40);
  v1::EvaluateRequest request = Request(id);
  request.mutable_data()->set_path("/data/other.csv");
  Predict(c, request);
  c.Settle();
  ExpectWhole(c, 40);

  c.data.set_test_examples(0);
  Predict(c, request, ReplyToken{90002});
  c.Settle();
  ASSERT_NE(c.ReplyTo(ReplyToken{90002}), nullptr);
  EXPECT_EQ(c.ReplyTo(ReplyToken{90002})->status.message(),
            "the data at /data/other.csv have no test split; use --split validation or --split train");

  c.data_error = "/data/other.csv: No such file or directory";
  Predict(c, request, ReplyToken{90003});
  c.Settle();
  ASSERT_NE(c.ReplyTo(ReplyToken{90003}), nullptr);
  EXPECT_EQ(c.ReplyTo(ReplyToken{90003})->status.message(),
            "/data/other.csv: No such file or directory (as worker \"worker-0\" sees it)");

  c.answer_inspections = false;  // the worker that was asked is lost
  c.data_error.clear();
  c.data.set_test_examples(40);
  Predict(c, request, ReplyToken{90004});
  c.Settle();
  c.Kill(c.node("worker-0"));
  c.answer_inspections = true;
  c.Pass(absl::Seconds(1));
  ASSERT_NE(c.ReplyTo(ReplyToken{90004}), nullptr);
  EXPECT_TRUE(c.ReplyTo(ReplyToken{90004})->status.ok()) << c.ReplyTo(ReplyToken{90004})->status;
}

// Weights from a file need neither a job that has run nor its ps.
TEST(ClusterPredict, OtherWeightsNeedNoPs) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(c.Spec(1)), queued = c.SubmitOk(c.Spec(1));
  c.Kill(c.node("ps-0"));
  c.Pass(absl::Seconds(1));
  for (uint64_t job : {id, queued}) {
    c.answer_evaluations = false;
    const ReplyToken token{91000 + job};
    v1::EvaluateRequest request = Request(job);
    request.set_weights("/run/step-7");
    c.Do(EvaluateJob{token, request, c.clock().Now() + absl::Minutes(10)});
    c.Settle();
    ASSERT_EQ(c.node("worker-0").shards.size(), 1u);
    EXPECT_EQ(c.node("worker-0").shards[0].weights(), "/run/step-7");
    EXPECT_EQ(c.node("worker-0").shards[0].routes_size(), 0);
    c.answer_evaluations = true;
    c.Settle();
    ASSERT_NE(c.ReplyTo(token), nullptr);
    EXPECT_TRUE(c.ReplyTo(token)->status.ok());
  }
}

TEST(ClusterPredict, SaysWhyItCannot) {
  Cluster c(1, 1);
  v1::JobSpec spec = c.Spec();
  Predict(c, Request(77));
  EXPECT_THAT(std::string(c.ReplyTo(kCall)->status.message()), HasSubstr("there is no job 77"));
  const uint64_t id = c.SubmitOk(spec);
  v1::EvaluateRequest request = Request(id);
  request.mutable_data()->set_path("");
  Predict(c, request, ReplyToken{90002});
  EXPECT_EQ(c.ReplyTo(ReplyToken{90002})->status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(c.ReplyTo(ReplyToken{90002})->status.message()), HasSubstr("data.path"));
}

}  // namespace
}  // namespace cairn
