#include "common/data/describe.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/data/class_folder.h"
#include "common/data/csv_columns.h"
#include "common/data/csv_texts.h"
#include "common/data/limits.h"
#include "common/data/picture.h"
#include "common/data/table.h"

namespace cairn {
namespace {

constexpr std::array<const char*, 3> kSplitNames = {"train", "validation", "test"};

template <typename T>
void Widen(T value, T* low, T* high) {
  *low = std::min(*low, value);
  *high = std::max(*high, value);
}

// Reads the sizes of a sample of the pictures. That of the first becomes the size to decode to.
absl::Status SampleSizes(v1::Data* data, DatasetSummary* summary) {
  CAIRN_ASSIGN_OR_RETURN(const ClassFolderFiles files, ListClassFolder(data->path(), kPictureFiles));
  const std::vector<ClassFile>& train = files.splits[kTrainSplit];
  summary->height_min = summary->width_min = std::numeric_limits<int64_t>::max();
  const int64_t count = static_cast<int64_t>(train.size()), sample = std::min(count, kSampledPicturesMax);
  for (int64_t i = 0; i < sample; ++i) {
    CAIRN_ASSIGN_OR_RETURN(const PictureSize size, ReadPictureSize(train[i * count / sample].path));
    if (i == 0 && data->image_height() == 0) data->set_image_height(static_cast<int32_t>(size.height));
    if (i == 0 && data->image_width() == 0) data->set_image_width(static_cast<int32_t>(size.width));
    Widen(size.height, &summary->height_min, &summary->height_max);
    Widen(size.width, &summary->width_min, &summary->width_max);
  }
  return absl::OkStatus();
}

SplitSummary SummarizeLabels(const ExampleTable& table, int32_t classes) {
  SplitSummary split;
  split.examples = table.size();
  split.class_examples.resize(classes);
  split.label_min = std::numeric_limits<double>::infinity();
  split.label_max = -split.label_min;
  for (int64_t i = 0; i < table.size(); ++i) {
    const double label = table.Label(i);
    if (classes > 0) ++split.class_examples[static_cast<size_t>(label)];
    Widen(label, &split.label_min, &split.label_max);
  }
  return split;
}

// Of the numbers of the examples, not of texts.
absl::Status SampleValues(const LoadedData& loaded, int64_t sample, DatasetSummary* summary) {
  const ExampleTable& table = *loaded.splits[static_cast<size_t>(loaded.first())];
  summary->sampled = std::min(sample, table.size());
  summary->value_min = std::numeric_limits<double>::infinity();
  summary->value_max = -summary->value_min;
  std::vector<float> example(static_cast<size_t>(NumElements(loaded.shape)));
  std::vector<bool> is_text(example.size(), false);
  for (const int64_t place : loaded.text_places) is_text[static_cast<size_t>(place)] = true;
  float label;
  for (int64_t i = 0; i < summary->sampled; ++i) {
    CAIRN_RETURN_IF_ERROR(table.Read(i * table.size() / summary->sampled, example.data(), &label));
    for (size_t place = 0; place < example.size(); ++place) {
      if (is_text[place]) continue;
      Widen<double>(example[place], &summary->value_min, &summary->value_max);
    }
  }
  return absl::OkStatus();
}

void DescribeTexts(const FoundData& found, DatasetSummary* summary) {
  summary->different_texts = found.loaded.texts->size();
  for (const CsvFeature& feature : found.features) {
    if (!feature.text) {
      ++summary->number_columns;
      continue;
    }
    summary->text_columns.push_back(ShowTexts(feature));
  }
}

void AppendTexts(const DatasetSummary& summary, std::string* text) {
  const size_t count = summary.text_columns.size();
  if (count == 0) return absl::StrAppend(text, "  texts       of UTF-8, one an example\n");
  absl::StrAppendFormat(text, "  columns     %d of texts, %d of numbers, besides the label; %d different texts\n",
                        count, summary.number_columns, summary.different_texts);
  for (size_t i = 0; i < std::min<size_t>(count, kClassesShownMax); ++i) {
    absl::StrAppend(text, "    ", summary.text_columns[i], "\n");
  }
  if (count > kClassesShownMax) absl::StrAppend(text, "    ... and ", count - kClassesShownMax, " more\n");
}

std::string Range(int64_t low, int64_t high) {
  return low == high ? absl::StrCat(low) : absl::StrCat(low, " to ", high);
}

// The training split, or the first one that there is.
const SplitSummary& FirstSplit(const DatasetSummary& summary) {
  const auto found = std::find_if(summary.splits.begin(), summary.splits.end(),
                                  [](const SplitSummary& split) { return split.examples > 0; });
  return found == summary.splits.end() ? summary.splits[kTrainSplit] : *found;
}

}  // namespace

absl::StatusOr<DatasetSummary> SummarizeDataset(const v1::Data& data, const std::vector<std::string>& texts) {
  DatasetSummary summary;
  v1::Data sized = data;
  const bool pictures =
      data.format() == v1::Data::IMAGE_FOLDER ||
      (data.format() == v1::Data::AUTO && !LooksLikeIdx(data.path()) && !LooksLikeCifar10(data.path()) &&
       !LooksLikeCsv(data.path()) && LooksLikeImageFolder(data.path()));
  if (pictures) CAIRN_RETURN_IF_ERROR(SampleSizes(&sized, &summary));
  CAIRN_ASSIGN_OR_RETURN(const FoundData found, LoadAsFound(sized, texts));
  const LoadedData& loaded = found.loaded;
  summary.info.set_path(data.path());
  summary.info.set_format(loaded.format);
  summary.info.set_classes(loaded.classes);
  for (const std::string& name : loaded.class_names) summary.info.add_class_names(name);
  for (int64_t d : loaded.shape) summary.info.add_example_shape(static_cast<int32_t>(d));
  for (int s = 0; s < 3; ++s) {
    if (loaded.splits[s]) summary.splits[s] = SummarizeLabels(*loaded.splits[s], loaded.classes);
    summary.splits[s].name = kSplitNames[s];
  }
  summary.info.set_train_examples(summary.splits[kTrainSplit].examples);
  summary.info.set_validation_examples(summary.splits[kValidationSplit].examples);
  summary.info.set_test_examples(summary.splits[kTestSplit].examples);
  summary.info.set_texts(static_cast<int32_t>(loaded.text_places.size()));
  if (loaded.texts != nullptr) DescribeTexts(found, &summary);
  if (static_cast<int64_t>(loaded.text_places.size()) == NumElements(loaded.shape)) return summary;
  CAIRN_RETURN_IF_ERROR(SampleValues(loaded, pictures ? kSampledPicturesMax : kSampledExamplesMax, &summary));
  return summary;
}

std::string ToText(const DatasetSummary& summary) {
  const v1::DataInfo& info = summary.info;
  std::string text = absl::StrFormat("%s\n", info.path());
  absl::StrAppendFormat(&text, "  format      %s\n", v1::Data::Format_Name(info.format()));
  if (summary.height_max > 0) {
    absl::StrAppendFormat(&text, "  pictures    height %s, width %s; resized to the size that the job asks for\n",
                          Range(summary.height_min, summary.height_max), Range(summary.width_min, summary.width_max));
  } else if (info.texts() > 0) {
    AppendTexts(summary, &text);
  } else {
    absl::StrAppendFormat(&text, "  shape       [%s]\n", absl::StrJoin(info.example_shape(), ", "));
  }
  if (summary.sampled > 0) {
    const SplitSummary& first = FirstSplit(summary);
    absl::StrAppendFormat(&text, "  values      %g to %g (in %d %s examples)\n", summary.value_min, summary.value_max,
                          summary.sampled, &first == summary.splits.data() ? "training" : first.name);
  }
  for (const SplitSummary& split : summary.splits) {
    absl::StrAppendFormat(&text, "  %-11s %s\n", split.name,
                          split.examples > 0 ? absl::StrCat(split.examples, " examples") : "none");
  }
  if (info.classes() == 0) {
    const SplitSummary& first = FirstSplit(summary);
    absl::StrAppendFormat(&text, "  labels      numbers, %g to %g\n", first.label_min, first.label_max);
    return text;
  }
  absl::StrAppendFormat(&text, "  classes     %d\n", info.classes());
  for (int64_t c = 0; c < std::min<int64_t>(info.classes(), kClassesShownMax); ++c) {
    const std::string name = c < info.class_names_size() ? info.class_names(static_cast<int>(c)) : "";
    std::string line = absl::StrFormat("    %3d %-22s", c, name);
    for (const SplitSummary& split : summary.splits) {
      if (split.examples > 0) absl::StrAppendFormat(&line, "  %s %d", split.name, split.class_examples[c]);
    }
    absl::StrAppend(&text, line, "\n");
  }
  if (info.classes() > kClassesShownMax)
    absl::StrAppend(&text, "    ... and ", info.classes() - kClassesShownMax, " more\n");
  return text;
}

absl::StatusOr<std::string> DescribeDataset(const v1::Data& data) {
  CAIRN_ASSIGN_OR_RETURN(const DatasetSummary summary, SummarizeDataset(data));
  return ToText(summary);
}

}  // namespace cairn
