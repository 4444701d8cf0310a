// Goal: a wrong job file gets an error with file, line and column as an editor counts them; a data path that exists
// here is made absolute, others are left to the workers.
#include "client/cli/job_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "client/cli/resume_from.h"
#include "common/formats/job_text.h"
#include "common/formats/onnx_file.h"

namespace cairn {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string ErrorOf(const std::string& text) {
  const auto spec = ParseJobText(text, "job.textproto");
  return spec.ok() ? "no error" : std::string(spec.status().message());
}

TEST(JobFile, ReadsTextFormatWithComments) {
  const auto spec = ParseJobText("# a job\nname: \"x\"\nepochs: 3\nmodel { layers { input { shape: [4] } } }", "f");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->name(), "x");
  EXPECT_EQ(spec->model().layers(0).input().shape(0), 4);
}

TEST(JobFile, ErrorsNameLineAndColumn) {
  EXPECT_THAT(ErrorOf("name: \"x\"\n  epoch: 3\n"), StartsWith("job.textproto:2:8: "));
  EXPECT_THAT(ErrorOf("name: \"x\"\n  epoch: 3\n"), HasSubstr("no field named \"epoch\""));
  EXPECT_THAT(ErrorOf("epochs: \"three\"\n"), StartsWith("job.textproto:1:9: "));
  EXPECT_THAT(ErrorOf("model {\n  layers {\n"), StartsWith("job.textproto:3:1: "));
  EXPECT_THAT(ErrorOf("strategy: FASTEST"), HasSubstr("FASTEST"));
  EXPECT_THAT(ErrorOf("epochs: 99999999999"), HasSubstr("job.textproto:1:"));
  EXPECT_THAT(ErrorOf(std::string("\xff\x00\x01{{{", 6)), HasSubstr("job.textproto:1:"));
  EXPECT_EQ(ErrorOf(""), "no error");
  EXPECT_THAT(ErrorOf("name: \"\\xff\""), HasSubstr("job.textproto: a text in it is not UTF-8"));
}

TEST(JobFile, ErrorsSayWhatToWrite) {
  EXPECT_EQ(
      ErrorOf("epocs: 3"),
      "job.textproto:1:6: Message type \"cairn.v1.JobSpec\" has no field named \"epocs\"; did you mean \"epochs\"?");
  EXPECT_EQ(ErrorOf("metrics { knid: ACCURACY }"),
            "job.textproto:1:15: Message type \"cairn.v1.Metric\" has no field named \"knid\"; did you mean \"kind\"?");
  EXPECT_EQ(ErrorOf("model { layers { permute { xyz: 1 } } }"),
            "job.textproto:1:31: Message type \"cairn.v1.Permute\" has no field named \"xyz\"; it has dims");
  EXPECT_EQ(ErrorOf("strategy: FASTEST"),
            "job.textproto:1:18: Unknown enumeration value of \"FASTEST\" for field \"strategy\"; use one of MIRRORED, "
            "MULTI_WORKER_MIRRORED, PARAMETER_SERVER, CENTRAL_STORAGE");
  EXPECT_EQ(ErrorOf("metrics { kind: TOP_K_CATEGORICAL_ACCURACY }"),
            "job.textproto:1:44: Unknown enumeration value of \"TOP_K_CATEGORICAL_ACCURACY\" for field \"kind\"; did "
            "you mean TOP_K_ACCURACY?");
  EXPECT_EQ(ErrorOf("callbacks { model_checkpoint { save_freq: 5 } }"),
            "job.textproto:1:43: Expected string, got: 5; put it in quotes");
}

TEST(JobFile, DeepNestingIsAnErrorNotACrash) {
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "model {";
  EXPECT_NE(ErrorOf(text), "no error");
  text = "model { layers { ";  // fields that there are
  for (int i = 0; i < 100000; ++i) text += "time_distributed { layer { ";
  EXPECT_THAT(ErrorOf(text), HasSubstr("too deep"));
}

class JobFileOnDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "cairn-job-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    before_ = std::filesystem::current_path();
    std::filesystem::current_path(dir_);
  }
  void TearDown() override {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(dir_);
  }
  std::filesystem::path dir_, before_;
};

TEST_F(JobFileOnDisk, MissingFilesAndDirectoriesAreNamed) {
  EXPECT_EQ(LoadJobFile("absent.textproto").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(LoadJobFile("absent.textproto").status().message(), HasSubstr("absent.textproto"));
  EXPECT_THAT(LoadJobFile(dir_.string()).status().message(), HasSubstr("is a directory"));
  std::ofstream("big") << std::string(5 << 20, ' ');
  EXPECT_THAT(LoadJobFile("big").status().message(), HasSubstr("longer than 4 MiB"));
  std::ofstream("ok") << "epochs: 2";
  EXPECT_EQ(LoadJobFile("ok")->epochs(), 2);
}

TEST_F(JobFileOnDisk, WhatOtherEditorsWriteIsReadOrSaid) {
  const auto load = [](const std::string& text) {
    std::ofstream("job", std::ios::binary) << text;
    return LoadJobFile("job");
  };
  const auto error = [&](const std::string& text) { return std::string(load(text).status().message()); };
  EXPECT_EQ(load("\xef\xbb\xbfname: \"x\"\r\nepochs: 2\r\n")->epochs(), 2) << "a mark, and lines that end in CR LF";
  EXPECT_THAT(error(std::string("\xff\xfen\0a\0", 6)), HasSubstr("job: is UTF-16; save it as UTF-8"));
  EXPECT_THAT(error("epochs: 2\nname: \"gr\xfcn\"\n"), HasSubstr("job:2: is not UTF-8"));
}

TEST_F(JobFileOnDisk, FilesWithoutAModelAreNamed) {
  const auto error = [](const std::string& path) {
    std::ofstream(path).close();
    v1::JobSpec spec;
    return std::string(TakeModelFile(path, &spec).message());
  };
  EXPECT_THAT(error("m.json"), HasSubstr("m.json: is empty"));
  EXPECT_THAT(error("m.safetensors"), HasSubstr("holds weights without a model; --set initial_weights takes them"));
  EXPECT_THAT(error("m.weights.h5"), HasSubstr("m.weights.h5: not an HDF5 file, or a damaged one"));
  EXPECT_THAT(error("m.pt"), HasSubstr("neither a .keras or .h5 file"));
}

TEST_F(JobFileOnDisk, OnlyRelativePathsThatExistBecomeAbsolute) {
  std::filesystem::create_directory("here");
  const auto path_after = [](const std::string& path) {
    v1::JobSpec spec;
    spec.mutable_data()->set_path(path);
    const absl::Status status = MakeDataPathAbsolute(&spec);
    return status.ok() ? spec.data().path() : std::string(status.message());
  };
  EXPECT_EQ(path_after("./here"), (std::filesystem::current_path() / "here").string());
  EXPECT_THAT(path_after("elsewhere"),
              testing::AllOf(testing::HasSubstr("data.path: elsewhere"),
                             testing::HasSubstr((std::filesystem::current_path() / "elsewhere").string())));
  EXPECT_EQ(path_after("/data"), "/data");
  v1::JobSpec none;
  EXPECT_TRUE(MakeDataPathAbsolute(&none).ok());
  EXPECT_FALSE(none.has_data());
}

TEST_F(JobFileOnDisk, AModelOfAnOnnxFileComesWithItsWeights) {
  const auto made = ParseJobText(
      "model { layers { input { shape: [4] } } layers { name: \"out\" dense { units: 3 activation: SOFTMAX } } }", "f");
  const Graph graph = Graph::Build(made->model()).value();
  ASSERT_EQ(WriteOnnxFile("m.onnx", {.model_name = "m"}, graph,
                          std::vector<float>(static_cast<size_t>(graph.space_size()), 0.5f)),
            absl::OkStatus());
  v1::JobSpec spec;
  spec.mutable_model()->mutable_ready_made()->set_name("lenet");
  ASSERT_EQ(TakeModelFile("m.onnx", &spec), absl::OkStatus());
  EXPECT_FALSE(spec.model().has_ready_made());
  ASSERT_EQ(spec.model().layers_size(), 2);
  EXPECT_EQ(spec.model().layers(1).dense().units(), 3);
  EXPECT_EQ(spec.initial_weights(), (dir_ / "m.onnx").string());
  spec.set_initial_weights("/shared/other");
  ASSERT_EQ(TakeModelFile("m.onnx", &spec), absl::OkStatus());
  EXPECT_EQ(spec.initial_weights(), "/shared/other");
  std::ofstream("bad.onnx") << "no model";
  EXPECT_EQ(std::string(TakeModelFile("bad.onnx", &spec).message()), "bad.onnx: not an ONNX file, or a damaged one");
  EXPECT_EQ(std::string(TakeModelFile("m.pt", &spec).message()),
            "--model m.pt: is neither a .keras or .h5 file, an .onnx file nor a .json file of model.to_json()");
}

// The workers may run in any folder.
TEST(JobFile, AJobsNumberIsNoCheckpoint) {
  v1::JobSpec spec;
  EXPECT_TRUE(CheckResumeFrom(spec).ok());
  for (const char* path : {"runs/4", "step-4", "4/step-4", "/4"}) {
    spec.set_resume_from(path);
    EXPECT_TRUE(CheckResumeFrom(spec).ok()) << path;
  }
  spec.set_resume_from("987654321");
  EXPECT_THAT(std::string(CheckResumeFrom(spec).message()),
              HasSubstr("give a checkpoint's directory, not a job's number; `cairn job 987654321` names it"));
}

TEST(ResumeFrom, AJobThatIsNamedSaysWhatItHas) {
  v1::JobSpec spec;
  spec.set_resume_from("987654321");
  const absl::Status refused = CheckResumeFrom(spec);
  v1::JobStatus job;
  job.set_job_id(987654321);
  job.mutable_spec()->set_name("lenet");
  const auto explained = [&](const absl::Status& status, absl::StatusOr<v1::JobStatus> answer) {
    return std::string(ExplainResumeFrom(status, spec, [&](const JobRef&) { return answer; }).message());
  };
  EXPECT_THAT(explained(refused, absl::NotFoundError("none")),
              HasSubstr("; there is no job 987654321: it was deleted, or never was; `cairn jobs` lists those"));
  EXPECT_EQ(explained(refused, absl::UnavailableError("away")), refused.message());
  const std::string none = absl::StrCat(
      refused.message(), "; job 987654321 (\"lenet\") writes no checkpoints, since it ", "has no checkpoints.dir");
  for (const v1::JobState state : {v1::QUEUED, v1::RUNNING}) {
    job.set_state(state);
    EXPECT_EQ(explained(refused, job), none) << "it has nothing to export yet";
  }
  job.mutable_spec()->mutable_checkpoints()->set_dir("/runs/a");
  EXPECT_THAT(explained(refused, job), EndsWith("(\"lenet\") has none yet in its checkpoints.dir, /runs/a"));
  job.mutable_spec()->clear_checkpoints();
  job.set_state(v1::SUCCEEDED);
  EXPECT_THAT(explained(refused, job), StartsWith(none + "; it cannot be resumed, but another job can begin with"));
  job.mutable_spec()->mutable_checkpoints()->set_dir("/runs/a");
  EXPECT_THAT(explained(refused, job), HasSubstr("has no checkpoint in its checkpoints.dir, /runs/a; it cannot be"));
  job.set_checkpoint_error("no space left");
  EXPECT_THAT(explained(refused, job), HasSubstr("its checkpoints.dir, /runs/a (no space left); it cannot be"));
  job.add_checkpoints()->set_step(30);
  job.mutable_checkpoints(0)->set_best(true);
  job.mutable_checkpoints(0)->set_path("/runs/a/best");
  EXPECT_THAT(explained(refused, job),
              EndsWith("; job 987654321 (\"lenet\"): its only checkpoint, the best one, of step "
                       "30, is /runs/a/best"));
  for (const int64_t step : {20, 10}) {
    job.add_checkpoints()->set_step(step);
    job.mutable_checkpoints()->rbegin()->set_path(absl::StrCat("/runs/a/step-", step));
  }
  EXPECT_THAT(explained(refused, job), EndsWith("; job 987654321 (\"lenet\"): its newest checkpoint, of step 20, is "
                                                "/runs/a/step-20"));
}

TEST(ResumeFrom, ANameIsAJobsIfTheWorkersHaveNoSuchFolder) {
  v1::JobSpec spec;
  spec.set_resume_from("lenet");
  MakeFilePathsAbsolute(&spec);
  std::vector<std::string> asked;
  const auto explained = [&](const absl::Status& status) {
    return std::string(ExplainResumeFrom(status, spec, [&](const JobRef& job) -> absl::StatusOr<v1::JobStatus> {
                         asked.push_back(job.name);
                         v1::JobStatus found;
                         found.set_job_id(4);
                         return found;
                       }).message());
  };
  const absl::Status refused = absl::InvalidArgumentError("resume_from: /here/lenet: holds no checkpoint");
  EXPECT_THAT(explained(refused), StartsWith("resume_from: /here/lenet: holds no checkpoint; job 4 (\"\") writes no"));
  EXPECT_EQ(explained(absl::InvalidArgumentError("epochs: too many")), "epochs: too many");
  spec.set_resume_from("/somewhere/else/lenet");
  EXPECT_EQ(explained(refused), refused.message()) << "a path";
  EXPECT_THAT(asked, ::testing::ElementsAre("lenet"));
}

TEST_F(JobFileOnDisk, PathsOfFilesAreTakenFromThisFolder) {
  v1::JobSpec spec;
  MakeFilePathsAbsolute(&spec);
  EXPECT_EQ(spec.ByteSizeLong(), 0u) << "nothing is made up";
  spec.mutable_checkpoints()->set_dir("run/../run1");
  spec.set_resume_from("run1");
  spec.set_initial_weights("/shared/best");
  spec.add_callbacks()->mutable_csv_logger()->set_filename("log.csv");
  MakeFilePathsAbsolute(&spec);
  EXPECT_EQ(spec.checkpoints().dir(), (dir_ / "run1").string());
  EXPECT_EQ(spec.resume_from(), (dir_ / "run1").string());
  EXPECT_EQ(spec.initial_weights(), "/shared/best");
  EXPECT_EQ(spec.callbacks(0).csv_logger().filename(), (dir_ / "log.csv").string());
}

}  // namespace
}  // namespace cairn
