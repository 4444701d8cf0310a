// Goal: texts of CSV columns, of TFRECORD features and of folders of text files come to a model as the numbers of the
// layers that take them, beside columns of numbers; a file whose texts do not fit the model, or are none, is refused
// with its place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/crc32c.h"
#include "common/data/convert.h"
#include "common/data/describe.h"
#include "common/data/record_file.h"
#include "common/data/text_dataset.h"
#include "common/data/text_store.h"
#include "common/data/tf_example.h"
#include "tests/unit/data/data_files.h"
#include "tests/unit/data/open_for_model.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A number, a text and two texts, in another order than the columns'.
constexpr char kMixed[] = R"(
    layers { name: "age" input { shape: 1 } }
    layers { name: "text" input { text: true shape: 1 } }
    layers { name: "tags" input { text: true shape: 2 } }
    layers { name: "words" inputs: "text" text_vectorization { vocabulary: ["a", "b"] output_sequence_length: 3 } }
    layers { name: "tag" inputs: "tags" string_lookup { vocabulary: ["x", "y"] } }
    layers { inputs: ["age", "words", "tag"] concatenate {} })";
constexpr char kMixedInputs[] = R"(inputs { input: "tags" columns: ["first", "second"] }
    inputs { input: "text" columns: "said" } inputs { input: "age" columns: "age" } label_column: "kind")";

void ExpectRefused(const std::string& model, const std::string& path, const std::string& data,
                   const std::vector<std::string>& parts) {
  const absl::StatusOr<DatasetPtr> opened = OpenFor(model, path, data);
  ASSERT_FALSE(opened.ok());
  for (const std::string& part : parts) EXPECT_THAT(std::string(opened.status().message()), HasSubstr(part));
}

TEST(TextStore, EqualTextsHaveOneNumber) {
  TextStore store;
  EXPECT_EQ(store.Add("b").value(), 0);
  EXPECT_EQ(store.Add("").value(), 1);
  EXPECT_EQ(store.Add("b").value(), 0);
  EXPECT_EQ(store.size(), 2);
  EXPECT_EQ(store.Get(0), "b");
  EXPECT_EQ(store.Get(1), "");
  EXPECT_THAT(std::string(store.Add("\xC3(").status().message()), HasSubstr("not UTF-8"));
}

TEST(TextData, OneColumnOfACsvFile) {
  TempFolder dir;
  WriteFile(dir / "train.csv", "said,kind\n\"A, b!\nB\",0\nc a,1\n  ,1\n");
  WriteFile(dir / "test.csv", "said,kind\nB,1\n");
  const auto dataset = OpenFor(kWords, dir.path());
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->info().texts(), 1);
  EXPECT_EQ((*dataset)->example_size(), 4);
  EXPECT_FALSE((*dataset)->in_memory());  // decoded ahead by other threads
  EXPECT_THAT(Example(**dataset, v1::TRAIN, 0).first, ElementsAre(2, 3, 3, 0));
  EXPECT_THAT(Example(**dataset, v1::TRAIN, 1).first, ElementsAre(1, 2, 0, 0));
  EXPECT_EQ(Example(**dataset, v1::TRAIN, 1).second, 1);
  EXPECT_THAT(Example(**dataset, v1::TRAIN, 2).first, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(Example(**dataset, v1::TEST, 0).first, ElementsAre(3, 0, 0, 0));
}

TEST(TextData, ColumnsOfTextsAndNumbers) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "age,first,kind,said,second,more\n4.5,x,no,b a,z,1\n7,y,yes,,x,2\n");
  const auto dataset = OpenFor(kMixed, dir / "d.csv", kMixedInputs);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->info().texts(), 3);
  EXPECT_THAT(Example(**dataset, v1::TRAIN, 0).first, ElementsAre(4.5, 3, 2, 0, 1, 0));
  EXPECT_THAT(Example(**dataset, v1::TRAIN, 1).first, ElementsAre(7, 0, 0, 0, 2, 1));
  EXPECT_THAT((*dataset)->info().class_names(), ElementsAre("no", "yes"));
}

// Where all columns are texts, the first line says by its names whether it is a header, or the job does.
TEST(TextData, HeadersOverTexts) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "said,kind\na,no\nb,yes\n");
  ExpectRefused(kWords, dir / "d.csv", "", {"data.header: missing", "set it to true or false"});
  for (const auto& [data, examples] : std::vector<std::pair<std::string, int>>{
           {"header: true", 2}, {"header: false", 3}, {"inputs { columns: 'said' }", 2}, {"label_column: 'kind'", 2}}) {
    const auto dataset = OpenFor(kWords, dir / "d.csv", data);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ((*dataset)->size(v1::TRAIN), examples) << data;
  }
}

TEST(TextData, WithoutALabelItCanBePredicted) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "said\na\nb a\n");
  const auto dataset = OpenFor(kWords, dir / "d.csv", "inputs { columns: 'said' } label_column: 'kind'");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(v1::TRAIN), 2);
  EXPECT_THAT((*dataset)->no_labels(), HasSubstr("no column \"kind\""));
  // Without names of inputs nothing says that the first line is a header.
  ExpectRefused(kWords, dir / "d.csv", "label_column: 'kind'",
                {"data.header: missing", "set it to true or false in the job", "seems to lack the column \"kind\""});
  EXPECT_EQ((*OpenFor(kWords, dir / "d.csv", "label_column: 'kind' header: true"))->size(v1::TRAIN), 2);
  WriteFile(dir / "any.csv", "said,kind\na,x\nb a,x\n");
  EXPECT_EQ((*OpenFor(kWords, dir / "any.csv", "label_column: 'kind'"))->size(v1::TRAIN), 2);
}

TEST(TextData, CsvFilesThatDoNotFit) {
  TempFolder dir;
  WriteFile(dir / "bytes.csv", "said,kind\na,0\nb\xC3(,1\n");
  ExpectRefused(kWords, dir / "bytes.csv", "",
                {"bytes.csv: line 3, column 0 (\"said\"): the text is not UTF-8; convert it"});
  WriteFile(dir / "wide.csv", "said,more,kind\na,b,0\nb,c,1\n");
  ExpectRefused(kWords, dir / "wide.csv", "", {"wide.csv has 2 texts in an example, and the model's inputs take 1"});
  WriteFile(dir / "number.csv", "age,first,kind,said,second\nold,x,1,a,y\n");
  ExpectRefused(kMixed, dir / "number.csv", kMixedInputs,
                {"number.csv: line 2, column 0 (\"age\"): \"old\" is not a number", "input with text: true"});
  ExpectRefused(kMixed, dir / "number.csv", "", {"data.inputs: missing, and input \"text\" takes texts"});
  ExpectRefused(kWords, dir / "number.csv", "inputs { columns: 'said' text: false } label_column: 'kind'",
                {"data.inputs[0].text: false, but input \"text\" takes texts; leave it out"});
  ExpectRefused(kWords, dir / "number.csv", "format: IDX", {"data.format: IDX has no texts"});
  ExpectRefused(kWords, dir / "number.csv", "targets { input_itself: true }",
                {"data.targets: input_itself, but the model's input is texts"});
  // Texts that no number stands for in the model.
  const auto numbers = Open(dir / "bytes.csv", {}, [](v1::Data* data) {
    data->add_inputs()->set_text(true);
    data->mutable_inputs(0)->set_input("x");
  });
  EXPECT_FALSE(numbers.ok());
}

FeatureValue OfBytes(const std::string& name, const std::string& bytes) {
  return {.name = name, .kind = FeatureKind::kBytes, .bytes = bytes};
}
FeatureValue OfInts(const std::string& name, const std::vector<int64_t>& ints) {
  return {.name = name, .kind = FeatureKind::kInts, .ints = ints};
}

std::string Records(const std::vector<std::vector<FeatureValue>>& examples) {
  std::string bytes;
  for (const auto& features : examples) AppendRecord(WriteExample(features), &bytes);
  return bytes;
}

TEST(TextData, FeaturesOfRecords) {
  TempFolder dir;
  WriteFile(dir / "d.tfrecord",
            Records({{OfBytes("text", "a b"), OfInts("label", {0})}, {OfBytes("text", "b"), OfInts("label", {1})}}));
  for (const char* data : {"", "tfrecord { input: 'text' encoding: TEXT }", "inputs { feature: 'text' }"}) {
    const auto dataset = OpenFor(kWords, dir / "d.tfrecord", data);
    ASSERT_TRUE(dataset.ok()) << data << ": " << dataset.status();
    EXPECT_THAT(Example(**dataset, v1::TRAIN, 0).first, ElementsAre(2, 3, 0, 0));
    EXPECT_THAT(Example(**dataset, v1::TRAIN, 1).first, ElementsAre(3, 0, 0, 0));
    EXPECT_EQ(Example(**dataset, v1::TRAIN, 1).second, 1);
  }
}

TEST(TextData, RecordsOfTextsAndNumbers) {
  const std::string model = R"(
    layers { name: "text" input { text: true shape: 1 } }
    layers { name: "sizes" input { shape: 2 } }
    layers { name: "words" inputs: "text" text_vectorization { vocabulary: ["a"] output_mode: COUNT } }
    layers { inputs: ["words", "sizes"] concatenate {} })";
  TempFolder dir;
  WriteFile(dir / "d.tfrecord", Records({{OfInts("s", {4, 5}), OfBytes("t", "a a c"), OfInts("y", {0})},
                                         {OfBytes("t", "c"), OfInts("s", {6, 7}), OfInts("y", {1})}}));
  const auto dataset = OpenFor(model, dir / "d.tfrecord",
                               "inputs { input: 'sizes' feature: 's' } inputs { input: 'text' feature: 't' }");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::vector<std::vector<float>> read = {Example(**dataset, v1::TRAIN, 0).first,
                                          Example(**dataset, v1::TRAIN, 1).first};
  // The inputs of what is computed are in the order of the layers: the sizes, then the words.
  EXPECT_THAT(read[0], ElementsAre(4, 5, 1, 2));
  EXPECT_THAT(read[1], ElementsAre(6, 7, 1, 0));
}

TEST(TextData, RecordsThatDoNotFit) {
  TempFolder dir;
  WriteFile(dir / "ints.tfrecord", Records({{OfInts("text", {3}), OfInts("label", {0})}}));
  ExpectRefused(kWords, dir / "ints.tfrecord", "",
                {"\"text\" is a int64_list, and the model's input takes texts, a bytes_list"});
  WriteFile(dir / "later.tfrecord",
            Records({{OfBytes("text", "a"), OfInts("label", {0})}, {OfInts("text", {3}), OfInts("label", {0})}}));
  ExpectRefused(kWords, dir / "later.tfrecord", "",
                {"later.tfrecord: record 1", "its input \"text\" is a int64_list, and the model's input takes texts"});
  WriteFile(dir / "bytes.tfrecord", Records({{OfBytes("text", "\xFF"), OfInts("label", {0})}}));
  ExpectRefused(kWords, dir / "bytes.tfrecord", "", {"record 0", "its input \"text\": the text is not UTF-8"});
  WriteFile(dir / "none.tfrecord", Records({{OfBytes("other", "a"), OfInts("label", {0})}}));
  ExpectRefused(kWords, dir / "none.tfrecord", "", {"the record has none of \"text\", \"x\""});
  WriteFile(dir / "plain.tfrecord", Records({{OfBytes("x", "a"), OfInts("label", {0})}}));
  const auto numbers = Open(dir / "plain.tfrecord", {},
                            [](v1::Data* data) { data->mutable_tfrecord()->set_encoding(v1::TfRecord::TEXT); });
  EXPECT_THAT(std::string(numbers.status().message()),
              HasSubstr("encoding: TEXT, but the model's input takes numbers"));
}

TEST(TextData, FoldersOfTextFiles) {
  TempFolder dir;
  WriteFile(dir / "train/good/1.txt", "a b\n");
  WriteFile(dir / "train/good/2.txt", "b");
  WriteFile(dir / "train/bad/1.txt", "\xC3\xA4 a");
  WriteFile(dir / "train/bad/notes", "is not read");
  WriteFile(dir / "test/bad/1.txt", "");
  const auto dataset = OpenFor(kWords, dir.path());
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->info().format(), v1::Data::TEXT_FOLDER);
  EXPECT_THAT((*dataset)->info().class_names(), ElementsAre("bad", "good"));
  EXPECT_THAT(Example(**dataset, v1::TRAIN, 0).first, ElementsAre(1, 2, 0, 0));
  EXPECT_EQ(Example(**dataset, v1::TRAIN, 0).second, 0);
  EXPECT_THAT(Example(**dataset, v1::TRAIN, 1).first, ElementsAre(2, 3, 0, 0));
  EXPECT_EQ(Example(**dataset, v1::TRAIN, 2).second, 1);
  EXPECT_EQ((*dataset)->size(v1::TEST), 1);
  EXPECT_EQ((*dataset)->NameOf(v1::TRAIN, 2), "train/good/2.txt");
  EXPECT_EQ((*dataset)->NameOf(v1::TEST, 0), "test/bad/1.txt");
  // Bytes, but whole characters.
  const auto cut = OpenFor(kWords, dir.path(), "max_length: 1");
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_THAT(Example(**cut, v1::TRAIN, 0).first, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(Example(**cut, v1::TRAIN, 1).first, ElementsAre(2, 0, 0, 0));
  v1::Data data;
  data.set_path(dir.path());
  EXPECT_THAT(DescribeDataset(data).value(), HasSubstr("texts       of UTF-8"));
}

TEST(TextData, FoldersThatDoNotFit) {
  TempFolder dir;
  WriteFile(dir / "good/1.txt", "a\xFF");
  ExpectRefused(kWords, dir.path(), "", {"good/1.txt: the text is not UTF-8"});
  ExpectRefused(kMixed, dir.path(), "format: TEXT_FOLDER",
                {"TEXT_FOLDER has one text an example, and the model takes"});
  std::filesystem::create_directories(dir / "empty");
  ExpectRefused(kWords, dir.path(), "", {"empty: holds no .txt file"});
}

// Of a folder of texts become records of texts.
TEST(TextData, ConvertedToRecords) {
  TempFolder dir;
  WriteFile(dir / "in/train/x/1.txt", "a b");
  WriteFile(dir / "in/train/y/1.txt", "b");
  v1::Data data;
  data.set_path(dir / "in");
  const auto converted = ConvertToTfRecord(data, {.out = dir / "out"});
  ASSERT_TRUE(converted.ok()) << converted.status();
  const auto dataset = OpenFor(kWords, dir / "out");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(Example(**dataset, v1::TRAIN, 0).first, ElementsAre(2, 3, 0, 0));
  EXPECT_EQ(Example(**dataset, v1::TRAIN, 1).second, 1);
}

TEST(TextData, ATokenWithoutAnIndexNamesTheExample) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "kind,said\n1,x\n0,new\n");
  const auto dataset = OpenFor(
      "layers { name: 't' input { text: true shape: 1 } } layers { string_lookup { vocabulary: 'x' num_oov_indices: 0 "
      "} }",
      dir / "d.csv", "label_column: 'kind'");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  float y, label;
  EXPECT_TRUE((*dataset)->Read(v1::TRAIN, 0, &y, &label).ok());
  ExpectError((*dataset)->Read(v1::TRAIN, 1, &y, &label), absl::StatusCode::kInvalidArgument,
              {"d.csv: example 1 of TRAIN: layer \"string_lookup\": \"new\" is not in the vocabulary"});
}

}  // namespace
}  // namespace cairn
