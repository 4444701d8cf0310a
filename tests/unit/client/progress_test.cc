// Goal: a watch shows the picture of progress.h for any sequence of statuses: every epoch once and in order, never
// wider than the terminal, whole lines if there is no terminal. Also the figures: means, and the JSON for scripts.
#include "client/cli/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/nodes_table.h"
#include "common/report/figures.h"
#include "common/report/json.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

v1::MetricSums Sums(uint64_t examples, double loss, double accuracy) {
  v1::MetricSums sums;
  sums.set_examples(examples);
  sums.set_loss(loss * static_cast<double>(examples));
  sums.add_metrics(accuracy * static_cast<double>(examples));
  return sums;
}

// Five epochs of 938 steps; `validation`: the number of examples of that split.
v1::JobStatus Job(int validation = 0) {
  v1::JobStatus job;
  job.set_job_id(3);
  job.mutable_spec()->set_name("fashion");
  job.mutable_spec()->set_epochs(5);
  job.mutable_spec()->set_batch_size(64);
  job.mutable_spec()->set_validation_freq(1);
  job.mutable_spec()->add_metrics()->set_kind(v1::Metric::ACCURACY);
  job.mutable_data()->set_validation_examples(static_cast<uint64_t>(validation));
  job.set_steps_per_epoch(938);
  job.set_total_steps(5 * 938);
  job.set_state(v1::RUNNING);
  return job;
}

void AddEpoch(v1::JobStatus* job, bool validated) {
  v1::EpochResult* result = job->add_epochs();
  result->set_epoch(job->epochs_size() - 1);
  result->set_seconds(8.4);
  *result->mutable_train() = Sums(60000, 0.3012, 0.8891);
  if (validated) *result->mutable_validation() = Sums(job->data().validation_examples(), 0.2811, 0.9012);
  job->set_epoch(job->epochs_size());
  job->set_step(job->epochs_size() * 938);
  job->clear_epoch_sums();
}

TEST(Progress, BarOfARunningEpoch) {
  v1::JobStatus job = Job();
  job.set_step(450);
  *job.mutable_epoch_sums() = Sums(28800, 0.3012, 0.8891);
  job.set_images_per_second(7120.4);
  Progress progress({true, 120});
  EXPECT_EQ(progress.Update(job),
            "job 3 \"fashion\": running\n"
            "Epoch 1/5\n"
            "\r[==============>...............] 450/938 - loss: 0.3012 - accuracy: 0.8891 - 7,120 images/s - 4.4s "
            "left\x1b[K");
  // The same status again: only the bar is drawn.
  EXPECT_THAT(progress.Update(job), Not(HasSubstr("\n")));
}

TEST(Progress, TheLossScaleOfJobsThatHaveOne) {
  v1::JobStatus job = Job();
  job.set_loss_scale(32768);
  job.set_step(450);
  EXPECT_THAT(Progress({true, 120}).Update(job), HasSubstr("450/938 - loss_scale: 32768"));
  AddEpoch(&job, false);
  AddEpoch(&job, false);
  const std::string plain = Progress({false, 80}).Update(job);
  EXPECT_THAT(plain, HasSubstr("epoch 2/5 - 8.4s - loss: 0.3012 - accuracy: 0.8891 - loss_scale: 32768\n"))
      << "that of the present step";
  EXPECT_THAT(plain, HasSubstr("epoch 1/5 - 8.4s - loss: 0.3012 - accuracy: 0.8891\n"));
}

void AddEvent(v1::JobStatus* job, int64_t seconds, const char* text, bool warning = false) {
  v1::JobEvent& event = *job->add_events();
  event.set_unix_ms(seconds * 1000);
  event.set_text(text);
  event.set_warning(warning);
}

TEST(Progress, EventsAsTheyHappen) {
  const ProgressOptions plain = {false, 80, absl::UTCTimeZone()};
  v1::JobStatus job = Job();
  for (int i = 0; i < 8; ++i) AddEvent(&job, i, absl::StrCat("event ", i).c_str());
  Progress progress(plain);
  const std::string first = progress.Update(job);
  EXPECT_THAT(first, Not(HasSubstr("event 2\n"))) << "of what was before, the newest";
  EXPECT_THAT(first,
              HasSubstr("00:00:03 event 3\n00:00:04 event 4\n00:00:05 event 5\n00:00:06 event 6\n00:00:07 event 7\n"));
  EXPECT_EQ(progress.Update(job), "");
  AddEvent(&job, 3661, "worker \"worker-1\" is gone; replicas 2,3 go to worker \"worker-0\"", true);
  job.mutable_events()->DeleteSubrange(0, 3);  // the coordinator forgets
  EXPECT_EQ(progress.Update(job),
            "01:01:01 warning: worker \"worker-1\" is gone; replicas 2,3 go to worker \"worker-0\"\n");
  // Above the bar of a terminal.
  Progress bar({true, 80, absl::UTCTimeZone()});
  bar.Update(job);
  AddEvent(&job, 4000, "replicas 2,3 go to worker \"worker-1\"");
  EXPECT_THAT(bar.Update(job), StartsWith("\r01:06:40 replicas 2,3 go to worker \"worker-1\"\x1b[K\n"));
}

TEST(Progress, AJobThatIsDegradedWhenTheWatchBegins) {
  v1::JobStatus job = Job();
  job.mutable_degraded()->set_since_unix_ms(3661000);
  job.mutable_degraded()->set_text("4 of 4 partitions lack a backup in sync");
  Progress progress({true, 200, absl::UTCTimeZone()});
  const std::string first = progress.Update(job);
  EXPECT_THAT(first, HasSubstr("degraded since 1970-01-01 01:01:01: 4 of 4 partitions lack a backup in sync"));
  EXPECT_THAT(first, HasSubstr(" - degraded")) << "in the bar";
  EXPECT_THAT(progress.Update(job), Not(HasSubstr("1970")));
}

TEST(Progress, NotesOfCallbacksAndTheLearningRate) {
  v1::JobStatus job = Job();
  AddEpoch(&job, false);
  job.mutable_epochs(0)->set_learning_rate(0.001f);
  const auto note = [&](int epoch, const char* text) {
    v1::CallbackNote& n = *job.add_notes();
    n.set_epoch(epoch);
    n.set_callback("model_checkpoint");
    n.set_text(text);
  };
  note(0, "saved /m-1.safetensors");
  Progress progress({false, 80});
  EXPECT_EQ(progress.Update(job),
            "job 3 \"fashion\": running\n"
            "epoch 1/5 - 8.4s - loss: 0.3012 - accuracy: 0.8891 - learning_rate: 0.0010\n"
            "epoch 1: model_checkpoint: saved /m-1.safetensors\n");
  EXPECT_EQ(progress.Update(job), "");
  note(1, "saved /m-2.safetensors");
  note(2, "saved /m-3.safetensors");
  job.mutable_notes()->DeleteSubrange(0, 1);  // the coordinator forgets the oldest
  EXPECT_EQ(progress.Update(job),
            "epoch 2: model_checkpoint: saved /m-2.safetensors\nepoch 3: model_checkpoint: saved /m-3.safetensors\n");
  EXPECT_EQ(progress.Update(job), "");
}

// The first steps of the next epoch may be known before the result of the one before.
TEST(Progress, TheNextEpochWaitsForTheResult) {
  v1::JobStatus job = Job();
  Progress progress({true, 200});
  progress.Update(job);
  job.set_epoch(1);
  job.set_step(938 + 5);
  *job.mutable_epoch_sums() = Sums(320, 0.2, 0.9);
  EXPECT_EQ(progress.Update(job), "\r[==============================] 938/938\x1b[K");
  AddEpoch(&job, true);
  job.set_step(938 + 6);
  const std::string text = progress.Update(job);
  EXPECT_LT(text.find("938/938 - 8.4s - loss: 0.3012"), text.find("Epoch 2/5\n")) << text;
}

TEST(Progress, EpochLineReplacesTheBar) {
  v1::JobStatus job = Job(1000);
  Progress progress({true, 200});
  progress.Update(job);
  AddEpoch(&job, false);
  EXPECT_THAT(progress.Update(job), HasSubstr("938/938 - loss: 0.3012 - accuracy: 0.8891 - validating"));
  *job.mutable_epochs(0)->mutable_validation() = Sums(1000, 0.2811, 0.9012);
  const std::string text = progress.Update(job);
  EXPECT_THAT(text, ::testing::StartsWith(
                        "\r[==============================] 938/938 - 8.4s - loss: 0.3012 - accuracy: 0.8891 - "
                        "val_loss: 0.2811 - val_accuracy: 0.9012\x1b[K\nEpoch 2/5\n"));
}

TEST(Progress, WithoutATerminalOnlyWholeLines) {
  v1::JobStatus job = Job();
  job.set_state(v1::QUEUED);
  job.set_reason("waits for a worker");
  Progress progress({false, 80});
  EXPECT_EQ(progress.Update(job), "job 3 \"fashion\": queued - waits for a worker\n");
  EXPECT_EQ(progress.Update(job), "");
  job.set_state(v1::RUNNING);
  job.clear_reason();
  EXPECT_EQ(progress.Update(job), "job 3 \"fashion\": running\n");
  job.set_step(100);
  EXPECT_EQ(progress.Update(job), "");
  AddEpoch(&job, false);
  EXPECT_EQ(progress.Update(job), "epoch 1/5 - 8.4s - loss: 0.3012 - accuracy: 0.8891\n");
  EXPECT_EQ(progress.Note("away"), "away\n");
}

TEST(Progress, EpochsThatWereMissedAreCaughtUp) {
  v1::JobStatus job = Job(1000);
  for (int i = 0; i < 5; ++i) AddEpoch(&job, i != 4);
  job.set_state(v1::SUCCEEDED);
  job.set_started_unix_ms(1000);
  job.set_finished_unix_ms(43100);
  job.set_digest("abc");
  Progress progress({false, 80});
  const std::string text = progress.Update(job);
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  ASSERT_EQ(lines.size(), 7u) << text;  // five epochs, the end, nothing after the last line's end
  for (int i = 0; i < 5; ++i)
    EXPECT_TRUE(absl::StartsWith(lines[static_cast<size_t>(i)], absl::StrCat("epoch ", i + 1, "/5"))) << text;
  EXPECT_EQ(lines[5], "job 3 \"fashion\": succeeded after 42s - digest abc");
  EXPECT_EQ(progress.Update(job), "");
}

TEST(Progress, FailureTellsTheReason) {
  v1::JobStatus job = Job();
  job.set_state(v1::FAILED);
  job.set_reason("ps-0 lost its disk");
  EXPECT_EQ(Progress({true, 80}).Update(job), "job 3 \"fashion\": failed - ps-0 lost its disk\n");
}

TEST(Progress, RandomStatusesNeverBreakTheInvariants) {
  const unsigned seed = 7;
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    const int width = 1 + static_cast<int>(random() % 150);
    Progress progress({true, width});
    v1::JobStatus job = Job(random() % 2 == 0 ? 1000 : 0);
    std::string all;
    while (job.epochs_size() < 5) {
      job.set_step(job.step() + random() % 400);
      *job.mutable_epoch_sums() = Sums(random() % 3, 1e-5, 0.5);
      job.set_images_per_second(random() % 2 == 0 ? 0 : 1e5);
      if (random() % 3 == 0) job.set_epoch(std::min(4, job.epochs_size() + 1));  // ahead of the results
      if (random() % 3 == 0) AddEpoch(&job, random() % 2 == 0);
      const std::string text = progress.Update(job);
      // The bar is what follows the last \r without a line's end.
      const size_t bar = text.rfind('\r');
      if (bar != std::string::npos && !absl::EndsWith(text, "\n")) {
        EXPECT_LE(text.size() - bar - 1 - 3, static_cast<size_t>(std::max(1, width - 1))) << text;
      }
      all += text;
    }
    job.set_state(v1::CANCELLED);
    all += progress.Update(job);
    size_t at = 0;
    for (int i = 1; i <= 5; ++i) {
      const std::string head = absl::StrCat("Epoch ", i, "/5\n");
      const size_t found = all.find(head, at);
      ASSERT_NE(found, std::string::npos) << i << "\n" << all;
      EXPECT_EQ(all.find(head, found + 1), std::string::npos);
      at = found;
    }
  }
}

TEST(Figures, MeansHaveTheMetricsNames) {
  v1::JobSpec spec;
  spec.add_metrics()->set_kind(v1::Metric::ACCURACY);
  spec.add_metrics()->set_kind(v1::Metric::ROOT_MEAN_SQUARED_ERROR);
  v1::MetricSums sums;
  EXPECT_TRUE(MeanFigures(spec, sums).empty());
  sums.set_examples(4);
  sums.set_loss(2);
  sums.add_metrics(3);
  sums.add_metrics(36);
  const Figures figures = MeanFigures(spec, sums);
  ASSERT_EQ(figures.size(), 3u);
  EXPECT_EQ(figures[0], std::make_pair(std::string("loss"), 0.5));
  EXPECT_EQ(figures[1], std::make_pair(std::string("accuracy"), 0.75));
  EXPECT_EQ(figures[2].second, 3.0);
  sums.clear_metrics();  // a shorter list than the job's is no reason to read beyond it
  EXPECT_EQ(MeanFigures(spec, sums).size(), 1u);
}

TEST(Figures, TextsForPeople) {
  EXPECT_EQ(Thousands(0), "0");
  EXPECT_EQ(Thousands(999), "999");
  EXPECT_EQ(Thousands(1000), "1,000");
  EXPECT_EQ(Thousands(1234567), "1,234,567");
  EXPECT_EQ(ShortDuration(absl::Seconds(-1)), "0.0s");
  EXPECT_EQ(ShortDuration(absl::Milliseconds(8440)), "8.4s");
  EXPECT_EQ(ShortDuration(absl::Milliseconds(9960)), "10s");
  EXPECT_EQ(ShortDuration(absl::Seconds(192)), "3m12s");
  EXPECT_EQ(ShortDuration(absl::Seconds(7500)), "2h05m");
  EXPECT_THAT(ShortDuration(absl::InfiniteDuration()), HasSubstr("h"));
  EXPECT_EQ(ShortBytes(512), "512 B");
  EXPECT_EQ(ShortBytes(1536 * 1024), "1.5 MiB");
  EXPECT_EQ(FigureText(0), "0.0000");
  EXPECT_EQ(FigureText(-std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(FigureText(1.2e-5), "1.2000e-05");
  EXPECT_EQ(Table({{"A", "BB"}, {"long", "x"}}), "A     BB\nlong  x\n");
}

TEST(Json, NumbersAreNumbersAndSumsAreMeans) {
  v1::JobStatus job = Job(1000);
  AddEpoch(&job, true);
  job.mutable_spec()->mutable_optimizer()->set_learning_rate(0.001f);
  job.mutable_spec()->mutable_data()->set_path("\xff/not utf-8");
  const auto json = nlohmann::json::parse(JobJson(job));
  EXPECT_EQ(json["job_id"], 3);
  EXPECT_EQ(json["state"].get<std::string>(), "RUNNING");
  EXPECT_EQ(json["step"], 938);
  EXPECT_TRUE(json["digest"].get<std::string>().empty());
  EXPECT_EQ(json["spec"]["optimizer"]["learning_rate"], 0.001);
  EXPECT_FALSE(json["spec"].contains("fsync"));
  EXPECT_EQ(json["epochs"][0]["train"]["examples"], 60000);
  EXPECT_NEAR(json["epochs"][0]["validation"]["accuracy"].get<double>(), 0.9012, 1e-9);
  EXPECT_THAT(JobJson(job), Not(HasSubstr("\n")));

  v1::EvaluateResponse response;
  *response.mutable_sums() = Sums(400, 0.5, 0.75);
  response.set_version(12);
  EXPECT_EQ(EvaluateJson(job, v1::TEST, response),
            R"({"job_id":3,"split":"TEST","examples":400,"loss":0.5,"accuracy":0.75,"version":12})");
  v1::SubmitResponse submitted;
  submitted.mutable_job()->set_job_id(9);
  submitted.add_warnings("batch is small");
  EXPECT_EQ(nlohmann::json::parse(SubmitJson(submitted))["job_id"], 9);
  EXPECT_EQ(nlohmann::json::parse(SubmitJson(submitted))["warnings"][0].get<std::string>(), "batch is small");
  v1::ListJobsResponse list;
  EXPECT_EQ(JobsJson(list), R"({"jobs":[],"retention":""})");
  *list.add_jobs() = job;
  *list.add_jobs() = job;
  list.set_retention("for ever");
  EXPECT_EQ(nlohmann::json::parse(JobsJson(list))["jobs"].size(), 2u);
  EXPECT_EQ(nlohmann::json::parse(JobsJson(list))["retention"], "for ever");
  v1::NodeStatus node;
  node.set_name("ps-0");
  node.set_role(v1::PS);
  EXPECT_EQ(nlohmann::json::parse(NodesJson({node}))["nodes"][0]["alive"], false);
}

TEST(Nodes, TableHasALineForEach) {
  EXPECT_THAT(NodesTable({}, absl::UnixEpoch()), HasSubstr("no nodes yet"));
  v1::NodeStatus node;
  node.set_name("worker-0");
  node.set_role(v1::WORKER);
  node.set_slots(2);
  node.set_last_heartbeat_unix_ms(1000);
  EXPECT_THAT(NodesTable({node}, absl::FromUnixMillis(6000)), HasSubstr("dead for 5.0s"));
  EXPECT_THAT(NodesTable({node}, absl::FromUnixMillis(6000)), HasSubstr("0 of 2 slots"));
  node.set_address("127.0.0.1:9,unix:/run/ps.sock");
  EXPECT_THAT(NodesTable({node}, absl::FromUnixMillis(6000)), HasSubstr("127.0.0.1:9 "));
  EXPECT_THAT(NodesTable({node}, absl::FromUnixMillis(6000)), Not(HasSubstr("unix")));
  node.set_role(v1::PS);
  node.set_partitions(3);
  node.set_primaries(1);
  EXPECT_THAT(NodesTable({node}, absl::FromUnixMillis(6000)), HasSubstr("1 primary, 2 backups"));
  node.set_ended_partitions(2);
  node.set_ended_primaries(1);
  EXPECT_THAT(NodesTable({node}, absl::FromUnixMillis(6000)),
              HasSubstr("0 primaries, 1 backup, and 2 partitions of ended jobs"));
  node.set_ended_partitions(3);
  EXPECT_THAT(NodesTable({node}, absl::FromUnixMillis(6000)), HasSubstr("3 partitions of ended jobs"));
  EXPECT_THAT(NodesTable({node}, absl::FromUnixMillis(6000)), Not(HasSubstr("0 partitions")))
      << "who drains it would stop it";
  node.clear_ended_partitions();
  node.clear_ended_primaries();
  EXPECT_THAT(NodesTable({node}, absl::FromUnixMillis(6000)), Not(HasSubstr("0 B"))) << "not known";
  EXPECT_THAT(NodesTable({node}, absl::FromUnixMillis(6000)), Not(HasSubstr("%"))) << "not known";
  node.set_processors(1.5);
  EXPECT_THAT(NodesTable({node}, absl::FromUnixMillis(6000)), HasSubstr(" 150% "));
  node.set_expected(true);
  EXPECT_THAT(NodesTable({node}, absl::FromUnixMillis(6000)), HasSubstr("not heard of yet"));
  node.set_expected(false);
  node.set_alive(true);
  node.set_not_ready("3 partitions of job 1 are not up to date on it yet");
  EXPECT_THAT(NodesTable({node}, absl::FromUnixMillis(6000)), HasSubstr("alive, not ready"));
  EXPECT_THAT(NodesTable({node}, absl::FromUnixMillis(6000)),
              HasSubstr("worker-0 is not ready: 3 partitions of job 1"));
}

TEST(Nodes, ReleasesAreNamedWhereThereAreSeveral) {
  v1::NodeStatus a, b;
  a.set_name("ps-0");
  b.set_name("worker-0");
  for (v1::NodeStatus* node : {&a, &b}) {
    node->set_alive(true);
    node->set_version("0.1");
    node->set_interface(2);
  }
  EXPECT_THAT(NodesTable({a, b}, absl::UnixEpoch()), Not(HasSubstr("releases")));
  b.set_version("0.2");
  b.set_interface(3);
  EXPECT_THAT(NodesTable({a, b}, absl::UnixEpoch()),
              HasSubstr("programs of several releases:\n  cairn 0.1 (interface 2): ps-0\n  cairn 0.2 (interface 3): "
                        "worker-0\n"));
  b.set_alive(false);
  EXPECT_THAT(NodesTable({a, b}, absl::UnixEpoch()), Not(HasSubstr("releases")));
}

}  // namespace
}  // namespace cairn
