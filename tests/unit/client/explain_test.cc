// Goal: every field of a job is explained from its proto, by the path that --set takes; a wrong path names the nearest
// one.
#include "client/cli/explain.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "absl/strings/str_split.h"
#include "cairn/v1/job.pb.h"

namespace cairn {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string Text(const std::string& path) {
  const auto text = Explain(path, 100);
  EXPECT_TRUE(text.ok()) << path << ": " << text.status();
  return text.value_or("");
}

TEST(ExplainTest, ShowsTypeCommentAndFieldsOfAMessage) {
  EXPECT_THAT(Text("optimizer.adam"),
              AllOf(StartsWith("optimizer.adam: Adam\n"), HasSubstr("In place of it one of: sgd, "),
                    HasSubstr("\nFields:\n  beta_1 "), HasSubstr("default 0.9")));
  EXPECT_EQ(Text("job.optimizer.adam"), Text("optimizer.adam"));
}

TEST(ExplainTest, ShowsTheValuesOfAnEnum) {
  EXPECT_THAT(Text("strategy"), AllOf(StartsWith("strategy: Strategy\n"), HasSubstr("\nValues:\n"),
                                      HasSubstr("  MULTI_WORKER_MIRRORED\n"), Not(HasSubstr("UNSPECIFIED"))));
}

TEST(ExplainTest, TakesListsWithAndWithoutAnIndex) {
  EXPECT_THAT(Text("model.layers[0].conv2d.filters"), StartsWith("model.layers[0].conv2d.filters: int32\n"));
  EXPECT_THAT(Text("model.layers"), StartsWith("model.layers: list of Layer\n"));
}

TEST(ExplainTest, TakesTheNamesOfMessagesAndEnums) {
  EXPECT_THAT(Text("Conv2D"), AllOf(StartsWith("Conv2D\n"), HasSubstr("  kernel_size ")));
  EXPECT_THAT(Text("Padding"), HasSubstr("  SAME\n"));
}

TEST(ExplainTest, OfTheJobItselfHasItsFields) {
  for (const char* path : {"", "job"}) EXPECT_THAT(Text(path), AllOf(HasSubstr("  batch_size"), HasSubstr("  model")));
}

TEST(ExplainTest, NamesTheFieldThatThereIsNot) {
  EXPECT_THAT(Explain("optimizer.adm", 100).status().message(),
              HasSubstr("Optimizer has no field \"adm\"; did you mean \"adam\"?"));
  EXPECT_THAT(Explain("Conv2", 100).status().message(),
              HasSubstr("there is no field or message \"Conv2\"; did you mean \"Conv2D\"?"));
  EXPECT_THAT(Explain("batch_size.x", 100).status().message(), HasSubstr("batch_size is not a message"));
  EXPECT_EQ(Explain("optimizer..adam", 100).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Explain("[", 100).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ExplainTest, LinesAreAsWideAsAsked) {
  for (const absl::string_view line : absl::StrSplit(Text("batch_size"), '\n')) EXPECT_LE(line.size(), 100u) << line;
  const std::string narrow = *Explain("strategy", 60);
  for (const absl::string_view line : absl::StrSplit(narrow, '\n')) EXPECT_LE(line.size(), 60u) << line;
}

// Every message that a job can hold is among the embedded protos, with the same fields as the compiled ones.
TEST(ExplainTest, KnowsEveryMessageOfAJob) {
  std::set<const Descriptor*> seen;
  const std::function<void(const Descriptor*)> visit = [&](const Descriptor* type) {
    if (!seen.insert(type).second) return;
    if (type->containing_type() == nullptr) {
      const std::string text = Text(type->name());
      for (int i = 0; i < type->field_count(); ++i) EXPECT_THAT(text, HasSubstr("\n  " + type->field(i)->name() + " "));
    }
    for (int i = 0; i < type->field_count(); ++i) {
      if (type->field(i)->message_type() != nullptr) visit(type->field(i)->message_type());
    }
  };
  visit(v1::JobSpec::descriptor());
  EXPECT_GT(seen.size(), 100u);
}

}  // namespace
}  // namespace cairn
