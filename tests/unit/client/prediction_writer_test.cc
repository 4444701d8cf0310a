// Goal: outputs as CSV, .npy and JSON lines have exactly these bytes; classes are those of the job; a file is whole or
// absent.
#include "client/cli/prediction_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

v1::PredictResponse Part(uint64_t first, const std::vector<float>& outputs, int side) {
  v1::PredictResponse part;
  part.set_first_example(first);
  part.set_examples(outputs.size() / static_cast<size_t>(side));
  part.add_output_shape(side);
  part.set_outputs(std::string(reinterpret_cast<const char*>(outputs.data()), outputs.size() * sizeof(float)));
  for (uint64_t e = first; e < first + part.examples(); ++e)
    part.add_inputs(e == 0 ? "cat/a \"b\", c.png" : absl::StrCat("cat/", e, ".png"));
  return part;
}

class PredictionWriterTest : public ::testing::Test {
 protected:
  PredictionWriterTest() { std::filesystem::create_directories(dir_); }
  ~PredictionWriterTest() override { std::filesystem::remove_all(dir_); }
  std::string Path(const std::string& name) { return dir_ + "/" + name; }
  std::string Read(const std::string& name) {
    std::ifstream in(Path(name), std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  std::string Written(const std::string& name, std::unique_ptr<ClassDecision> decision = nullptr) {
    auto writer = PredictionWriter::Open(Path(name), *PredictionFormatOf(name), std::move(decision));
    EXPECT_TRUE(writer.ok()) << writer.status();
    EXPECT_TRUE((*writer)->Write(Part(0, {0.25f, 0.75f, 1e-7f, 0.1f}, 2)).ok());
    EXPECT_TRUE((*writer)->Write(Part(2, {0.5f, -3}, 2)).ok());
    EXPECT_FALSE(std::filesystem::exists(Path(name))) << "not whole yet";
    EXPECT_TRUE((*writer)->Close().ok());
    return Read(name);
  }

  const std::string dir_ = ::testing::TempDir() + "/prediction_writer";
};

TEST_F(PredictionWriterTest, Csv) {
  EXPECT_EQ(Written("o.csv"),
            "example,output_0,output_1,input\n0,0.25,0.75,\"cat/a \"\"b\"\", c.png\"\n1,1e-07,0.1,cat/1.png\n"
            "2,0.5,-3,cat/2.png\n");
}

TEST_F(PredictionWriterTest, JsonLines) {
  EXPECT_EQ(Written("o.jsonl"),
            "{\"example\":0,\"outputs\":[0.25,0.75],\"input\":\"cat/a \\\"b\\\", c.png\"}\n"
            "{\"example\":1,\"outputs\":[1e-07,0.1],\"input\":\"cat/1.png\"}\n"
            "{\"example\":2,\"outputs\":[0.5,-3],\"input\":\"cat/2.png\"}\n");
}

// Of workers of an earlier release, which name no inputs.
TEST_F(PredictionWriterTest, InputsThatAreNotKnown) {
  v1::PredictResponse part = Part(0, {0.5f, -3}, 2);
  part.clear_inputs();
  for (const auto& [name, text] : {std::pair{"o.csv", "example,output_0,output_1,input\n0,0.5,-3,\n"},
                                   {"o.jsonl", "{\"example\":0,\"outputs\":[0.5,-3],\"input\":null}\n"}}) {
    auto writer = PredictionWriter::Open(Path(name), *PredictionFormatOf(name), nullptr);
    ASSERT_TRUE((*writer)->Write(part).ok());
    ASSERT_TRUE((*writer)->Close().ok());
    EXPECT_EQ(Read(name), text);
  }
}

TEST_F(PredictionWriterTest, NamedOutputs) {
  for (const auto& [name, text] :
       {std::pair{"o.csv", "example,kind,far_0,far_1,input\n1,1,2,3,cat/1.png\n"},
        {"o.jsonl", "{\"example\":1,\"outputs\":{\"kind\":[1],\"far\":[2,3]},\"input\":\"cat/1.png\"}\n"}}) {
    auto writer = PredictionWriter::Open(Path(name), *PredictionFormatOf(name), nullptr);
    (*writer)->NameOutputs({{"kind", {1}}, {"far", {2}}});
    ASSERT_TRUE((*writer)->Write(Part(1, {1, 2, 3}, 3)).ok());
    ASSERT_TRUE((*writer)->Close().ok());
    EXPECT_EQ(Read(name), text);
  }
}

TEST_F(PredictionWriterTest, AnOutputThatIsCalledInput) {
  for (const auto& [name, text] :
       {std::pair{"o.csv", "example,input,far_0,far_1,input_name\n1,1,2,3,cat/1.png\n"},
        {"o.jsonl", "{\"example\":1,\"outputs\":{\"input\":[1],\"far\":[2,3]},\"input_name\":\"cat/1.png\"}\n"}}) {
    auto writer = PredictionWriter::Open(Path(name), *PredictionFormatOf(name), nullptr);
    (*writer)->NameOutputs({{"input", {1}}, {"far", {2}}});
    ASSERT_TRUE((*writer)->Write(Part(1, {1, 2, 3}, 3)).ok());
    ASSERT_TRUE((*writer)->Close().ok());
    EXPECT_EQ(Read(name), text);
  }
}

TEST_F(PredictionWriterTest, Npy) {
  const std::string bytes = Written("o.npy");
  ASSERT_EQ(bytes.size(), 192 + 6 * sizeof(float));
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  EXPECT_EQ(static_cast<unsigned char>(bytes[8]), 182);
  EXPECT_EQ(bytes.substr(10, 62), "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2,), }  ");
  EXPECT_EQ(bytes[191], '\n');
  float last;
  std::memcpy(&last, bytes.data() + bytes.size() - sizeof(last), sizeof(last));
  EXPECT_EQ(last, -3);
}

TEST_F(PredictionWriterTest, Classes) {
  v1::JobStatus job;
  job.mutable_spec()->mutable_loss()->set_kind(v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
  job.mutable_data()->add_class_names("a \"b\", c");
  EXPECT_EQ(Written("c.csv", std::make_unique<ClassDecision>(*ClassDecision::Of(job))),
            "example,class,probability,input\n0,1,0.75,\"cat/a \"\"b\"\", c.png\"\n1,1,0.1,cat/1.png\n"
            "2,\"a \"\"b\"\", c\",0.5,cat/2.png\n");
  EXPECT_EQ(Written("c.jsonl", std::make_unique<ClassDecision>(*ClassDecision::Of(job))),
            "{\"example\":0,\"class\":\"1\",\"probability\":0.75,\"input\":\"cat/a \\\"b\\\", c.png\"}\n"
            "{\"example\":1,\"class\":\"1\",\"probability\":0.1,\"input\":\"cat/1.png\"}\n"
            "{\"example\":2,\"class\":\"a \\\"b\\\", c\",\"probability\":0.5,\"input\":\"cat/2.png\"}\n");
  job.mutable_spec()->mutable_loss()->set_from_logits(true);
  const float logits[] = {0, std::log(3.0f)};
  EXPECT_NEAR(ClassDecision::Of(job)->Decide(logits, 2).probability, 0.75, 1e-6);
  job.mutable_spec()->mutable_loss()->set_kind(v1::Loss::BINARY_CROSSENTROPY);
  const float negative[] = {-std::log(4.0f)};
  EXPECT_EQ(ClassDecision::Of(job)->Decide(negative, 1).number, 0u);
  EXPECT_NEAR(ClassDecision::Of(job)->Decide(negative, 1).probability, 0.8, 1e-6);
}

TEST_F(PredictionWriterTest, NothingIsLeftOfACallThatFailed) {
  {
    auto writer = PredictionWriter::Open(Path("o.csv"), PredictionFormat::kCsv, nullptr);
    EXPECT_TRUE((*writer)->Write(Part(0, {1, 2}, 2)).ok());
    v1::PredictResponse bad = Part(1, {1, 2}, 2);
    bad.set_outputs("123");
    EXPECT_EQ((*writer)->Write(bad).message(), "3 bytes of outputs for 1 examples");
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir_));
}

TEST_F(PredictionWriterTest, Errors) {
  struct Case {
    std::string text;
    absl::Status status;
  };
  v1::JobStatus job;
  job.set_job_id(5);
  job.mutable_spec()->mutable_loss()->set_kind(v1::Loss::MEAN_SQUARED_ERROR);
  const Case cases[] = {
      {"-o out.txt: the extension selects the format; use .csv, .npy or .jsonl",
       PredictionFormatOf("out.txt").status()},
      {"--classes: the outputs of job 5 are not classes (its loss is MEAN_SQUARED_ERROR)",
       ClassDecision::Of(job).status()},
      {"--classes: names do not fit into .npy; use .csv or .jsonl",
       PredictionWriter::Open("o.npy", PredictionFormat::kNpy, std::make_unique<ClassDecision>()).status()},
      {"-o /nowhere/o.csv: cannot write: No such file or directory",
       PredictionWriter::Open("/nowhere/o.csv", PredictionFormat::kCsv, nullptr).status()},
  };
  for (const Case& c : cases) EXPECT_EQ(c.status.message(), c.text);
}

}  // namespace
}  // namespace cairn
