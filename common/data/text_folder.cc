// Texts in folders by class (common/data/class_folder.h), as keras.utils.text_dataset_from_directory reads them. All
// are read when the data set is opened.
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "common/data/byte_reader.h"
#include "common/data/class_folder.h"
#include "common/data/float_table.h"
#include "common/data/limits.h"
#include "common/data/table.h"

namespace cairn {
namespace {

bool HasTextName(const std::string& name) { return absl::EndsWith(name, ".txt"); }

constexpr ClassFileKind kTextFiles = {HasTextName, ".txt", "texts"};

absl::StatusOr<float> ReadText(const std::string& path, int32_t max_length, TextStore* texts) {
  CAIRN_ASSIGN_OR_RETURN(ByteReader reader, ByteReader::Open(path));
  CAIRN_ASSIGN_OR_RETURN(const std::string text, reader.ReadToEnd(kTextBytesMax));
  std::string_view kept = text;
  if (max_length > 0) kept = CutUtf8(kept, static_cast<size_t>(max_length));
  const absl::StatusOr<float> number = texts->Add({kept.data(), kept.size()});
  if (!number.ok()) return Annotate(number.status(), path);
  return number;
}

}  // namespace

bool LooksLikeTextFolder(const std::string& dir) { return LooksLikeClassFolder(dir, kTextFiles); }

absl::StatusOr<LoadedData> LoadTextFolder(const v1::Data& data) {
  if (data.max_length() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.max_length: ", data.max_length(), " is negative; use the bytes of a text, or leave it out"));
  }
  CAIRN_ASSIGN_OR_RETURN(ClassFolderFiles files, ListClassFolder(data.path(), kTextFiles));
  LoadedData loaded;
  loaded.shape = {1};
  loaded.element = Element::kFloat;
  loaded.class_names = std::move(files.class_names);
  loaded.classes = static_cast<int32_t>(loaded.class_names.size());
  const auto texts = std::make_shared<TextStore>();
  for (int s = 0; s < 3; ++s) {
    if (files.splits[s].empty()) continue;
    std::vector<float> numbers, labels;
    std::vector<std::string> names;
    for (const ClassFile& file : files.splits[s]) {
      CAIRN_ASSIGN_OR_RETURN(const float number, ReadText(file.path, data.max_length(), texts.get()));
      numbers.push_back(number);
      labels.push_back(static_cast<float>(file.label));
      names.push_back(file.name);
    }
    loaded.splits[s] =
        std::make_shared<NamedFloatTable<std::string>>(std::move(numbers), std::move(labels), std::move(names));
  }
  loaded.texts = texts;
  loaded.text_places = {0};
  return loaded;
}

}  // namespace cairn
