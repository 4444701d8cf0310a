// Goal: where no job describes a CSV data set, `cairn data info` and `convert` find its columns of texts, or are told
// them; a slip in a column of numbers, and what cannot be told or written, is refused with its place.
#include "common/data/csv_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/data/convert.h"
#include "common/data/describe.h"
#include "tests/unit/data/data_files.h"
#include "tests/unit/data/open_for_model.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kLines[] = "age,said,kind,tag\n4.5,b a,no,x\n7,,yes,12\n?,a,no,y\n";

// Without a job a column is one of texts if a value of it is neither a number nor missing.
TEST(CsvTexts, CsvColumnsAreShownAsTheyAreFound) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "age,said,kind,tag\n4.5,b a,no,x\n7,,yes,12\n-1,a,no,y\n");
  v1::Data data;
  data.set_path(dir / "d.csv");
  data.set_label_column("kind");
  const auto summary = SummarizeDataset(data);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_THAT(summary->text_columns, ElementsAre("column 1 (\"said\"): texts, as \"b a\" in line 2",
                                                 "column 3 (\"tag\"): texts, as \"x\" in line 2"));
  EXPECT_EQ(summary->number_columns, 1);
  EXPECT_EQ(summary->value_min, -1);
  EXPECT_EQ(summary->value_max, 7);
  EXPECT_EQ(summary->info.texts(), 2);
  EXPECT_THAT(summary->info.class_names(), ElementsAre("no", "yes"));
  EXPECT_THAT(ToText(*summary),
              HasSubstr("columns     2 of texts, 1 of numbers, besides the label; 6 different texts"));
  // A missing number is refused as for a job.
  WriteFile(dir / "d.csv", kLines);
  EXPECT_THAT(std::string(DescribeDataset(data).status().message()),
              HasSubstr("column 0 (\"age\"): a value is missing"));
}

TEST(CsvTexts, CsvColumnsOfTextsBecomeFeatures) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "age,first,kind,said\n4.5,x,no,b a\n7,y,yes,\n");
  v1::Data data;
  data.set_path(dir / "d.csv");
  data.set_label_column("kind");
  const auto converted = ConvertToTfRecord(data, {.out = dir / "d.tfrecord"});
  ASSERT_TRUE(converted.ok()) << converted.status();
  const char* const model = R"(
    layers { name: "age" input { shape: 1 } }
    layers { name: "text" input { text: true shape: 1 } }
    layers { name: "tag" input { text: true shape: 1 } }
    layers { name: "words" inputs: "text" text_vectorization { vocabulary: ["a", "b"] output_sequence_length: 3 } }
    layers { name: "index" inputs: "tag" string_lookup { vocabulary: ["x", "y"] } }
    layers { inputs: ["age", "words", "index"] concatenate {} })";
  const auto dataset = OpenFor(model, dir / "d.tfrecord",
                               R"(inputs { input: "age" feature: "x" } inputs { input: "text" feature: "said" }
      inputs { input: "tag" feature: "first" } tfrecord { label: "y" })");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(Example(**dataset, v1::TRAIN, 0).first, ElementsAre(4.5, 3, 2, 0, 1));
  EXPECT_THAT(Example(**dataset, v1::TRAIN, 1).first, ElementsAre(7, 0, 0, 0, 2));
  EXPECT_EQ(Example(**dataset, v1::TRAIN, 1).second, 1);
}

// The only column beside the label is read without being named.
TEST(CsvTexts, OneCsvColumnOfTextsBecomesText) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "a b,0\nb,1\n");
  v1::Data data;
  data.set_path(dir / "d.csv");
  ASSERT_TRUE(ConvertToTfRecord(data, {.out = dir / "d.tfrecord"}).ok());
  const auto dataset = OpenFor(kWords, dir / "d.tfrecord");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(Example(**dataset, v1::TRAIN, 0).first, ElementsAre(2, 3, 0, 0));
  EXPECT_EQ(Example(**dataset, v1::TRAIN, 1).second, 1);
}

// One slip does not make texts of a column of numbers.
TEST(CsvTexts, SlipsInCsvColumnsOfNumbersAreRefused) {
  TempFolder dir;
  const auto write = [&](int numbers) {
    std::string text = "age,said,kind\n";
    for (int i = 0; i < numbers; ++i) absl::StrAppend(&text, i, ",word,", i % 2, "\n");
    WriteFile(dir / "d.csv", absl::StrCat(text, "1O.5,word,0\n,word,1\n"));
  };
  v1::Data data;
  data.set_path(dir / "d.csv");
  write(100);
  const std::string why =
      absl::StrCat(dir / "d.csv",
                   ": line 102, column 0 (\"age\"): \"1O.5\" is not a number, as 100 of the column's "
                   "101 values are; correct it, or give --text 0 if the column holds texts");
  EXPECT_EQ(ConvertToTfRecord(data, {.out = dir / "d.tfrecord"}).status().message(), why);
  EXPECT_EQ(SummarizeDataset(data).status().message(), why);
  for (const char* column : {"age", "0", "-3"}) {
    const auto converted = ConvertToTfRecord(data, {.out = dir / "d.tfrecord", .texts = {column}});
    ASSERT_TRUE(converted.ok()) << converted.status();
    EXPECT_THAT(converted->text_columns, ElementsAre("column 0 (\"age\"): texts, as \"1O.5\" in line 102",
                                                     "column 1 (\"said\"): texts, as \"word\" in line 2"));
  }
  write(99);
  const auto converted = ConvertToTfRecord(data, {.out = dir / "d.tfrecord"});
  ASSERT_TRUE(converted.ok()) << converted.status();
  EXPECT_EQ(converted->text_columns.size(), 2u);
}

// Whatever its values look like.
TEST(CsvTexts, CsvColumnsNamedAsTexts) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "code,age,kind\n01067,4,0\n80331,5,1\n");
  v1::Data data;
  data.set_path(dir / "d.csv");
  const auto summary = SummarizeDataset(data, {"code"});
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_THAT(summary->text_columns, ElementsAre("column 0 (\"code\"): texts, as \"01067\" in line 2"));
  EXPECT_EQ(summary->number_columns, 1);
  const auto why = [&](const char* column) { return std::string(SummarizeDataset(data, {column}).status().message()); };
  EXPECT_THAT(why("cod"), HasSubstr("has no column \"cod\"; its columns are code, age, kind"));
  EXPECT_THAT(why("3"), HasSubstr("--text: 3, but"));
  EXPECT_THAT(why("kind"), AllOf(HasSubstr("--text: column 2 (\"kind\") of "), HasSubstr("is the label")));
  // A name says that there is a header, where no number does.
  WriteFile(dir / "d.csv", "said,kind\na,no\nb,yes\n");
  EXPECT_THAT(why("0"), HasSubstr("data.header: missing"));
  EXPECT_EQ(SummarizeDataset(data, {"said"}).value().info.train_examples(), 2);
  WriteFile(dir / "texts/a/1.txt", "word");
  data.set_path(dir / "texts");
  EXPECT_THAT(why("said"), HasSubstr("TEXT_FOLDER, and --text is for the columns of CSV files; leave it out"));
}

TEST(CsvTexts, CsvColumnsThatCannotBeToldOrWritten) {
  TempFolder dir;
  const auto why = [&](const std::string& text, const char* header) {
    WriteFile(dir / "d.csv", text);
    v1::Data data;
    data.set_path(dir / "d.csv");
    if (header[0] != 0) data.set_header(header == std::string("true"));
    return std::string(ConvertToTfRecord(data, {.out = dir / "d.tfrecord"}).status().message());
  };
  EXPECT_THAT(why("said,kind\na,no\nb,yes\n", ""), HasSubstr("data.header: missing, and all columns of"));
  EXPECT_EQ(why("said,kind\na,no\nb,yes\n", "true"), "");
  EXPECT_EQ(why("said,kind\na,no\nb,yes\n", "false"), "");
  EXPECT_THAT(why("y,age,kind\na,1,0\nb,2,1\n", ""), HasSubstr("column 0 (\"y\") holds texts, and its name is that"));
  EXPECT_THAT(why("s,s,kind\na,b,0\nb,c,1\n", ""), HasSubstr("column 1 (\"s\") holds texts, and its name is that"));
  // Columns are those of CSV files.
  WriteFile(dir / "texts/a/1.txt", "word");
  v1::Data folder;
  folder.set_path(dir / "texts");
  folder.set_header(true);
  EXPECT_THAT(std::string(DescribeDataset(folder).status().message()),
              HasSubstr("TEXT_FOLDER, and data.header is for the columns of CSV files; leave it out"));
}

}  // namespace
}  // namespace cairn
