// Goal: CSV data sets give exactly the numbers that were written; header, labels and classes are detected; lines that
// cannot be read are named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/data/csv_heads.h"
#include "common/data/csv_unlabelled.h"
#include "common/data/describe.h"
#include "common/data/limits.h"
#include "tests/unit/data/data_files.h"
#include "tests/unit/data/open_dataset.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Csv, NumbersAndClasses) {
  TempFolder dir;
  WriteGzip(dir / "d.csv.gz", "1,2.5,-3e1,0\r\n\r\n+4, 5 ,\"6\",2\r\n7,8,9,1");
  const auto dataset = Open(dir / "d.csv.gz");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->info().format(), v1::Data::CSV);
  EXPECT_EQ((*dataset)->info().classes(), 3);
  EXPECT_EQ((*dataset)->size(v1::TRAIN), 3);
  EXPECT_THAT(Example(**dataset, v1::TRAIN, 0).first, ElementsAre(1, 2.5, -30));
  EXPECT_THAT(Example(**dataset, v1::TRAIN, 1).first, ElementsAre(4, 5, 6));
  EXPECT_EQ(Example(**dataset, v1::TRAIN, 1).second, 2);
}

TEST(Csv, LabelColumnByNameAndNumber) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "\xEF\xBB\xBFkind,a,b\nx,1,2\ny,3,4\n");
  for (const char* column : {"kind", "0", "-3"}) {
    const auto dataset = Open(dir / "d.csv", {}, [&](v1::Data* d) { d->set_label_column(column); });
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_THAT((*dataset)->info().class_names(), ElementsAre("x", "y"));
    EXPECT_THAT(Example(**dataset, v1::TRAIN, 1).first, ElementsAre(3, 4));
    EXPECT_EQ(Example(**dataset, v1::TRAIN, 1).second, 1);
  }
}

TEST(Csv, HeaderIsToldFromTheNextLine) {
  struct Case {
    std::string text;
    int64_t examples;
  };
  for (const Case& c : std::vector<Case>{{"a,b,label\n1,2,0\n3,4,1\n", 2},  // names over numbers
                                         {"1,2,yes\n3,4,no\n", 2},          // text only in the label
                                         {"0,1,label\n1,2,0\n3,4,1\n", 2},  // a name over the label only
                                         {"1,2,0\n3,4,1\n5,6,1\n", 3}}) {   // numbers
    TempFolder dir;
    WriteFile(dir / "d.csv", c.text);
    const auto dataset = Open(dir / "d.csv");
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ((*dataset)->size(v1::TRAIN), c.examples) << c.text;
  }
  TempFolder dir;
  WriteFile(dir / "d.csv", "0,1,label\n1,2,yes\n3,4,no\n");
  EXPECT_EQ((*Open(dir / "d.csv"))->size(v1::TRAIN), 3);
  EXPECT_EQ((*Open(dir / "d.csv", {}, [](v1::Data* d) { d->set_header(true); }))->size(v1::TRAIN), 2);
}

TEST(Csv, LabelsThatAreNumbers) {
  for (const char* text : {"1,0.5\n2,1\n", "1,-1\n2,1\n", "1,5\n2,100000\n"}) {
    TempFolder dir;
    WriteFile(dir / "d.csv", text);
    const auto dataset = Open(dir / "d.csv");
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ((*dataset)->info().classes(), 0) << text;
  }
}

TEST(Csv, TheLabelThatDecidesTheClassesIsNamed) {
  const struct {
    const char* test;
    const char* where;
  } cases[] = {{"7,2\n8,1\n", "train.csv: line 3 has label 4"},
               {"7,2\n8,12\n9,12\n", "test.csv: line 2 has label 12"},
               {"7,2\n8,-1\n", "test.csv: line 2 has label -1: column 1, the last one, is taken for the label"},
               {"7,0.5\n", "test.csv: line 1 has label 0.5: column 1, the last one, is taken for the label"},
               {"7,cat\n", ""}};  // no class of the training data
  for (const auto& c : cases) {
    TempFolder dir;
    WriteFile(dir / "train.csv", "1,0\n2,3\n3,4\n");
    WriteFile(dir / "test.csv", c.test);
    const auto dataset = Open(dir.path());
    const std::string found = dataset.ok() ? (*dataset)->info().deciding_label() : "";
    EXPECT_EQ(found, *c.where == '\0' ? "" : dir / c.where) << c.test;
  }
}

// One class named by a text among others named by numbers: it may be a mistake.
TEST(Csv, ATextAmongNumbersIsAClassThatIsNamed) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "1,1\n2,2\n3,more\n");
  const auto dataset = Open(dir / "d.csv");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->info().classes(), 3);
  EXPECT_EQ((*dataset)->info().deciding_label(), dir / "d.csv: line 3 has label more");
  WriteFile(dir / "e.csv", "1,NA\n2,US\n");  // Namibia
  EXPECT_EQ((*Open(dir / "e.csv"))->info().classes(), 2);
}

TEST(Csv, AQuoteWithinAFieldIsPartOfIt) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "1,5\" disk\n2,\"a \"\"b\"\"\"\n");
  const auto dataset = Open(dir / "d.csv");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT((*dataset)->info().class_names(), ElementsAre("5\" disk", "a \"b\""));
}

TEST(Csv, ExamplesAreNamedByTheirLines) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "a,label\n\n1,dog\n2,\"a\nb\"\n3,cat\n");
  const auto dataset = Open(dir / "d.csv");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->NameOf(v1::TRAIN, 0), "3") << "a blank line counts";
  EXPECT_EQ((*dataset)->NameOf(v1::TRAIN, 1), "4");
  EXPECT_EQ((*dataset)->NameOf(v1::TRAIN, 2), "6") << "a field of two lines";
}

TEST(Csv, SplitFilesOfAFolder) {
  TempFolder dir;
  WriteFile(dir / "train.csv", "a,label\n1,dog\n2,cat\n");
  WriteGzip(dir / "validation.csv.gz", "a,label\n3,cat\n");
  WriteFile(dir / "test.csv", "a,label\n4,dog\n5,dog\n6,cat\n");
  const auto dataset = Open(dir.path());
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(v1::TRAIN), 2);
  EXPECT_EQ((*dataset)->size(v1::VALIDATION), 1);
  EXPECT_EQ((*dataset)->size(v1::TEST), 3);
  EXPECT_EQ(Example(**dataset, v1::TEST, 1).second, 1);
  EXPECT_EQ(Example(**dataset, v1::VALIDATION, 0).second, 0);
}

// By its name it is another split; nothing is trained with it before somebody says so.
TEST(Csv, AFileOfAnotherSplitAloneIsNotTrainedWith) {
  TempFolder dir;
  WriteFile(dir / "test.csv", "a,label\n4,dog\n5,cat\n");
  const auto dataset = Open(dir.path(), {}, [](v1::Data* d) { d->set_validation_split(0.5f); });
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(v1::TRAIN), 0);
  EXPECT_EQ((*dataset)->size(v1::VALIDATION), 0);
  EXPECT_EQ((*dataset)->size(v1::TEST), 2);
  EXPECT_EQ(Example(**dataset, v1::TEST, 0).second, 1);
  EXPECT_TRUE((*dataset)->in_memory());
  ExpectError(CheckTrains(**dataset), absl::StatusCode::kInvalidArgument,
              {"there is " + (dir / "test.csv") + ", but no train.csv[.gz] beside it", "set data.path to the file"});
  EXPECT_TRUE(CheckLabelled(**dataset).ok());
  v1::Data data;
  data.set_path(dir.path());
  EXPECT_THAT(DescribeDataset(data).value(), AllOf(HasSubstr("(in 2 test examples)"), HasSubstr("train       none")));

  const auto file = Open(dir / "test.csv");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->size(v1::TRAIN), 2) << "what is named itself is trained with";
  EXPECT_TRUE(CheckTrains(**file).ok());

  WriteFile(dir / "validation.csv", "a,label\n6,dog\n7,cat\n");
  EXPECT_EQ((*Open(dir.path()))->size(v1::VALIDATION), 2);
  EXPECT_FALSE(CheckTrains(**Open(dir.path())).ok());
  WriteFile(dir / "more.csv", "a,label\n6,dog\n");
  ExpectError(Open(dir.path(), {}, [](v1::Data* d) { d->set_format(v1::Data::CSV); }).status(),
              absl::StatusCode::kNotFound, {"neither train.csv"});
}

TEST(Csv, WithoutALabelItCanBePredicted) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "a,b\n1,0.5\n2,0.25\n");
  const auto dataset = Open(dir / "d.csv", {2});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(Example(**dataset, v1::TRAIN, 1).first, ElementsAre(2, 0.25));
  for (const absl::Status& status : {CheckTrains(**dataset), CheckLabelled(**dataset)}) {
    ExpectError(status, absl::StatusCode::kInvalidArgument,
                {dir / "d.csv has 2 columns, as many as the model has inputs", "add the label's column",
                 "give the model one input fewer"});
  }
  // Of a model with one input the last column is the label.
  const auto labelled = Open(dir / "d.csv", {1});
  ASSERT_TRUE(labelled.ok()) << labelled.status();
  EXPECT_TRUE(CheckTrains(**labelled).ok());
  EXPECT_EQ((*labelled)->info().deciding_label(),
            dir / "d.csv: line 2 has label 0.5: column 1 (\"b\"), the last one, is taken for the label");
  // A label that is named and not there.
  const auto named = [&](const Shape& shape) {
    return Open(dir / "d.csv", shape, [](v1::Data* d) { d->set_label_column("kind"); });
  };
  ExpectError(named({}).status(), absl::StatusCode::kInvalidArgument, {"no column \"kind\""});
  ExpectError(named({3}).status(), absl::StatusCode::kInvalidArgument,
              {"no column \"kind\"; its columns are a, b; besides the label the model takes 3 columns"});
  ASSERT_TRUE(named({2}).ok()) << named({2}).status();
  ExpectError(CheckLabelled(**named({2})), absl::StatusCode::kInvalidArgument, {"no column \"kind\""});
}

// Columns that have the names of the label and the weight are never inputs.
TEST(Csv, ALabelThatIsThereByItsNameIsNoInput) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "a,b,price\n1,2,0.5\n3,4,0.25\n");
  const auto open = [&](const Shape& shape, const std::string& label, const std::string& weight) {
    return Open(dir / "d.csv", shape, [&](v1::Data* d) {
      d->set_label_column(label);
      d->set_weight_column(weight);
    });
  };
  const auto labelled = open({3}, "price", "");
  ASSERT_TRUE(labelled.ok()) << labelled.status();
  EXPECT_THAT(Example(**labelled, v1::TRAIN, 1).first, ElementsAre(3, 4));
  EXPECT_EQ(Example(**labelled, v1::TRAIN, 1).second, 0.25);
  EXPECT_TRUE(CheckLabelled(**labelled).ok());
  // The weight is there and the label is not: two inputs are left, whatever the weight is.
  ExpectError(open({3}, "kind", "price").status(), absl::StatusCode::kInvalidArgument, {"no column \"kind\""});
  const auto weighted = open({2}, "kind", "price");
  ASSERT_TRUE(weighted.ok()) << weighted.status();
  EXPECT_THAT(Example(**weighted, v1::TRAIN, 1).first, ElementsAre(3, 4));
  ExpectError(CheckLabelled(**weighted), absl::StatusCode::kInvalidArgument, {"no column \"kind\""});
  ExpectError(CheckLabelled(**open({2}, "-1", "price")), absl::StatusCode::kInvalidArgument,
              {"d.csv has 2 columns besides the weight, as many as the model has inputs"});
  // The label is there and the weight is not.
  ExpectError(open({3}, "price", "w").status(), absl::StatusCode::kInvalidArgument, {"no column \"w\""});
  const auto unweighted = open({2}, "price", "w");
  ASSERT_TRUE(unweighted.ok()) << unweighted.status();
  EXPECT_THAT(Example(**unweighted, v1::TRAIN, 1).first, ElementsAre(3, 4));
  ExpectError(CheckTrains(**unweighted), absl::StatusCode::kInvalidArgument, {"no column \"w\""});
}

TEST(Csv, WhetherALabelIsMissingIsGuessedOnlyWhereItHasNoName) {
  TempFolder dir;
  WriteGzip(dir / "d.csv.gz", "a,b\n1,0.5\n2,0.25\n");
  const auto guessed = [&](const std::string& label, const Shape& shape, const std::string& path) {
    v1::Data data;
    data.set_path(path);
    data.set_label_column(label);
    return IsGuessedUnlabelled(data, shape);
  };
  for (const char* label : {"", "-1", "0"}) {
    EXPECT_TRUE(guessed(label, {2}, dir / "d.csv.gz")) << label;
    EXPECT_TRUE(guessed(label, {2}, dir.path())) << label;
  }
  EXPECT_FALSE(guessed("-1", {1}, dir / "d.csv.gz")) << "the last column is the label";
  EXPECT_FALSE(guessed("-1", {3}, dir / "d.csv.gz"));
  EXPECT_FALSE(guessed("kind", {2}, dir / "d.csv.gz")) << "it is known to be missing";
  EXPECT_FALSE(guessed("b", {2}, dir / "d.csv.gz"));
  EXPECT_FALSE(guessed("-1", {2}, dir / "none.csv"));
  // A line longer than what is looked at.
  WriteFile(dir / "d.csv", std::string(kCsvHeadBytesMax, ' ') + ",2\n");
  EXPECT_FALSE(guessed("-1", {2}, dir / "d.csv"));
}

// Other data than the job's.
TEST(Csv, InputsInAnotherOrderThanTheJobsAreRefused) {
  TempFolder dir;
  const auto check = [&](const std::string& trained, const std::string& now, v1::Data data = {},
                         const Shape& shape = {2}) {
    WriteFile(dir / "job/train.csv", trained);
    WriteFile(dir / "now.csv", now);
    if (data.label_column().empty()) data.set_label_column("kind");
    data.set_path(dir / "job");
    v1::Data other = data;
    other.set_path(dir / "now.csv");
    return CheckSameInputs(data, other, shape);
  };
  const std::string trained = "kind,height,weight\n0,1,2\n1,3,4\n";
  ExpectError(check(trained, "weight,height\n2,1\n"), absl::StatusCode::kInvalidArgument,
              {"data.path: " + dir / "now.csv: column 0 (\"weight\") would be taken for \"height\" of ",
               dir / "job/train.csv", "Its inputs are weight, height, the job's are height, weight"});
  ExpectError(check(trained, "kind,weight,height\n0,2,1\n"), absl::StatusCode::kInvalidArgument, {"column 1"});
  ExpectError(check(trained, "height,mass\n1,2\n"), absl::StatusCode::kInvalidArgument,
              {"column 1 (\"mass\") would be taken for \"weight\""});
  // The label may be anywhere, or nowhere.
  EXPECT_TRUE(check(trained, "height,weight\n1,2\n").ok());
  EXPECT_TRUE(check(trained, "height,weight,kind\n1,2,0\n").ok());
  EXPECT_TRUE(check(trained, "height,kind,weight\n1,0,2\n").ok());
  // Without a header line in both there is nothing to compare; nor where the job's file is not here.
  EXPECT_TRUE(check(trained, "2,1\n4,3\n").ok());
  v1::Data last;
  last.set_label_column("-1");
  EXPECT_TRUE(check("1,2,0\n3,4,1\n", "weight,height,kind\n2,1,0\n", last).ok());
  v1::Data gone;
  gone.set_path(dir / "gone.csv");
  v1::Data now;
  now.set_path(dir / "now.csv");
  EXPECT_TRUE(CheckSameInputs(gone, now, {2}).ok());
  // What does not fit the model is refused by who reads it.
  EXPECT_TRUE(check(trained, "kind,a,b,c\n0,1,2,3\n").ok());
  // By their names the columns are found wherever they are.
  v1::Data named;
  for (const char* column : {"height", "weight"}) named.add_inputs()->add_columns(column);
  EXPECT_TRUE(check(trained, "weight,height\n2,1\n", named).ok());
}

TEST(Csv, WhatIsTakenForTheLabelIsTold) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "1,2,3\n4,5,6\n");
  v1::Data data;
  data.set_path(dir / "d.csv");
  EXPECT_EQ(TellColumns(data, {4}), dir /
                                        "d.csv has 3 columns, of which column 2, the last one, counts as the label; "
                                        "the model takes 4 besides the label, or 4 alone to predict");
  data.set_label_column("0");
  EXPECT_THAT(TellColumns(data, {2, 2}), HasSubstr("of which column 0 counts as the label; the model takes 4 besides"));
  EXPECT_EQ(TellColumns(data, {3}), dir / "d.csv has 3 columns");
  data.set_path(dir / "none.csv");
  EXPECT_EQ(TellColumns(data, {4}), "");
}

TEST(Csv, TooFewColumnsForAModel) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "1\n2\n");
  ExpectError(Open(dir / "d.csv", {3}).status(), absl::StatusCode::kDataLoss,
              {"d.csv: line 1 has 1 column; the model takes 3 of each line, and a label besides them"});
}

TEST(Csv, BadLinesAreNamed) {
  struct Case {
    std::string text;
    std::string label;
    absl::StatusCode code;
    std::vector<std::string> parts;
  };
  const auto kLoss = absl::StatusCode::kDataLoss, kInvalid = absl::StatusCode::kInvalidArgument;
  for (const Case& c :
       std::vector<Case>{{"", "", kLoss, {"empty"}},
                         {"a,b\n", "", kLoss, {"no data"}},
                         {"1\n2\n", "", kLoss, {"1 column;", "commas"}},
                         {"1,2,3\n1,2\n", "", kLoss, {"line 2", "2 columns", "have 3"}},
                         {"1,2,3\n\n1,,3\n", "", kInvalid, {"line 3", "column 1", "missing"}},
                         {"1,2,3\n1,?,3\n", "", kInvalid, {"line 2", "missing"}},
                         {"1,2,\n", "", kLoss, {"line 1", "no label"}},
                         {"1,1e99,3\n", "", kInvalid, {"line 1", "column 1", "1e99"}},
                         {"1,inf,3\n", "", kInvalid, {"column 1", "inf"}},
                         {"1,\"2,3\n", "", kLoss, {"line 1", "not closed"}},
                         {"1,\"2\"3,3\n", "", kLoss, {"line 1", "closing quote"}},
                         {std::string("1,\0,3\n", 6), "", kLoss, {"zero byte"}},
                         {"39, State-gov, 13, <=50K\n50, Private, 13, >50K\n",
                          "",
                          kInvalid,
                          {"line 1, column 1", "State-gov", "encode", "drop"}},
                         {"age,work,x\n39,State-gov,1\n", "", kInvalid, {"line 2, column 1 (\"work\")", "State-gov"}},
                         {"1,2\n3,4\n", "7", kInvalid, {"data.label_column", "7", "2 columns"}},
                         {"1,2\n3,4\n", "-3", kInvalid, {"data.label_column"}},
                         {"1,2\n3,4\n", "kind", kInvalid, {"data.label_column", "no header"}},
                         {"a,b\n3,4\n", "kind", kInvalid, {"no column \"kind\"", "a, b"}},
                         {"1,-inf\n3,4\n", "0", kInvalid, {"line 1, column 1", "-inf", "not a finite float32"}},
                         {",0,1\n0,5,6\n", "", kInvalid, {"line 1, column 0", "missing", "data.header: true"}},
                         {"1,nan,3\n4,5,6\n", "", kInvalid, {"line 1, column 1", "missing"}},  // no header
                         {"1,0.5\n3,4\n2,oops\n", "", kLoss, {"line 3", "oops"}},
                         {"1,7\n3,nan\n2,5\n", "", kLoss, {"line 2", "label \"nan\" is not a number"}},
                         {"1,7\n3,4\n2,-inf\n", "", kLoss, {"line 3", "label \"-inf\" is not a number"}},
                         {"1,7\n3,4\n2,NA\n", "", kLoss, {"line 3", "label \"NA\" is not a number"}}}) {
    SCOPED_TRACE(c.text);
    TempFolder dir;
    WriteFile(dir / "d.csv", c.text);
    const auto dataset = Open(dir / "d.csv", {}, [&](v1::Data* d) { d->set_label_column(c.label); });
    ExpectError(dataset.status(), c.code, c.parts);
  }
}

TEST(Csv, SplitsMustFitTogether) {
  TempFolder dir;
  WriteFile(dir / "train.csv", "a,label\n1,dog\n2,cat\n");
  WriteFile(dir / "test.csv", "a,label\n1,dog\n2,cow\n");
  ExpectError(Open(dir.path()).status(), absl::StatusCode::kDataLoss, {"test.csv: line 3", "cow"});
  WriteFile(dir / "test.csv", "b,label\n1,dog\n");
  ExpectError(Open(dir.path()).status(), absl::StatusCode::kDataLoss, {"test.csv", "\"b\"", "\"a\""});
  WriteFile(dir / "test.csv", "1,2,3\n");
  ExpectError(Open(dir.path()).status(), absl::StatusCode::kDataLoss, {"test.csv", "3 columns"});
}

}  // namespace
}  // namespace cairn
