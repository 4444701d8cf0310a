#include "common/data/record_files.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/files.h"
#include "common/data/limits.h"
#include "common/data/table.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

constexpr int kNoSplit = -1;

struct ShardName {
  std::string stem;  // the part that all shards of a set share
  int number = 0, of = 0;
};

std::string BaseName(const std::string& path) { return fs::path(path).filename().string(); }

// "name-00001-of-00004[.gz]"
bool ParseShard(absl::string_view name, ShardName* shard) {
  const bool packed = absl::ConsumeSuffix(&name, ".gz");
  const size_t of = name.rfind("-of-");
  const size_t dash = of == absl::string_view::npos || of == 0 ? absl::string_view::npos : name.rfind('-', of - 1);
  if (dash == absl::string_view::npos) return false;
  const auto digits = [](absl::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  };
  const absl::string_view number = name.substr(dash + 1, of - dash - 1), count = name.substr(of + 4);
  if (!digits(number) || !digits(count) || !absl::SimpleAtoi(number, &shard->number) ||
      !absl::SimpleAtoi(count, &shard->of)) {
    return false;
  }
  shard->stem = absl::StrCat(name.substr(0, dash), packed ? ".gz" : "");
  return shard->of > 0 && shard->of <= kShardsMax && shard->number < shard->of;
}

int SplitOfWord(absl::string_view word) {
  if (word == "train" || word == "training") return kTrainSplit;
  if (word == "validation" || word == "valid" || word == "val") return kValidationSplit;
  if (word == "test" || word == "testing") return kTestSplit;
  return kNoSplit;
}

int SplitOfName(const std::string& name) {
  for (const absl::string_view word : absl::StrSplit(name, absl::ByAnyChar("-_."))) {
    if (const int split = SplitOfWord(word); split != kNoSplit) return split;
  }
  if (absl::StartsWith(name, "train")) return kTrainSplit;  // train0.tfrecord
  if (absl::StartsWith(name, "validation")) return kValidationSplit;
  if (absl::StartsWith(name, "test")) return kTestSplit;
  return kNoSplit;
}

std::vector<std::string> RecordFilesIn(const std::string& dir, std::vector<std::string>* folders) {
  std::vector<std::string> files;
  for (const FolderEntry& entry : EntriesOf(dir)) {
    if (entry.name[0] == '.') continue;
    if (entry.kind == PathInfo::kFolder) {
      folders->push_back(entry.name);
    } else if (HasRecordName(entry.name)) {
      files.push_back(absl::StrCat(dir, "/", entry.name));
    }
  }
  return files;
}

absl::Status CheckShards(const std::vector<std::string>& files) {
  std::map<std::string, std::pair<int, std::set<int>>> families;  // by stem: the number of shards, and which exist
  for (const std::string& file : files) {
    ShardName shard;
    if (!ParseShard(BaseName(file), &shard)) continue;
    auto& [of, numbers] = families[shard.stem];
    if (of != 0 && of != shard.of) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: next to it are shards of a set of %d; remove those that do not belong", file, of));
    }
    of = shard.of;
    numbers.insert(shard.number);
  }
  for (const auto& [stem, family] : families) {
    for (int i = 0; i < family.first; ++i) {
      if (family.second.contains(i)) continue;
      return absl::NotFoundError(absl::StrFormat("%s: shard %05d of %05d of \"%s\" is missing; fetch it too",
                                                 fs::path(files[0]).parent_path().string(), i, family.first, stem));
    }
  }
  return absl::OkStatus();
}

// Returns the file, or, if it is a shard, all shards of its set.
std::vector<std::string> Family(const std::string& path) {
  ShardName own, other;
  if (!ParseShard(BaseName(path), &own)) return {path};
  std::vector<std::string> folders, files;
  const std::string dir = fs::path(path).parent_path().string();
  for (const std::string& file : RecordFilesIn(dir.empty() ? "." : dir, &folders)) {
    if (ParseShard(BaseName(file), &other) && other.stem == own.stem) files.push_back(file);
  }
  return files.empty() ? std::vector<std::string>{path} : files;
}

}  // namespace

bool HasRecordName(const std::string& path) {
  const std::string name = BaseName(path);
  ShardName ignored;
  if (ParseShard(name, &ignored)) return true;
  absl::string_view plain = name;
  absl::ConsumeSuffix(&plain, ".gz");
  return absl::EndsWith(plain, ".tfrecord") || absl::EndsWith(plain, ".tfrecords");
}

absl::StatusOr<std::array<std::vector<std::string>, 3>> FindRecordFiles(const std::string& path) {
  std::array<std::vector<std::string>, 3> splits;
  if (!IsFolder(path)) {
    splits[kTrainSplit] = Family(path);
    CAIRN_RETURN_IF_ERROR(CheckShards(splits[kTrainSplit]));
    return splits;
  }
  std::vector<std::string> folders, none;
  const std::vector<std::string> files = RecordFilesIn(path, &folders);
  std::sort(folders.begin(), folders.end());
  for (const std::string& folder : folders) {
    const int split = SplitOfWord(folder);
    if (split == kNoSplit) continue;
    const std::vector<std::string> inside = RecordFilesIn(absl::StrCat(path, "/", folder), &none);
    splits[split].insert(splits[split].end(), inside.begin(), inside.end());
  }
  std::vector<std::string> unnamed;
  for (const std::string& file : files) {
    const int split = SplitOfName(BaseName(file));
    (split == kNoSplit ? unnamed : splits[split]).push_back(file);
  }
  const bool named = !splits[0].empty() || !splits[1].empty() || !splits[2].empty();
  if (named && !unnamed.empty()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: its name names no split, but those of other files do; put \"train\", \"validation\" or "
                        "\"test\" into it",
                        unnamed[0]));
  }
  if (!named) splits[kTrainSplit] = std::move(unnamed);
  if (splits[kTrainSplit].empty()) {
    return absl::NotFoundError(
        absl::StrFormat("%s: holds no TFRecord file to train with; looked for *.tfrecord[s][.gz] and *-00000-of-00004, "
                        "of which names with "
                        "\"validation\" or \"test\" are those splits'",
                        path));
  }
  for (const std::vector<std::string>& split : splits) {
    if (!split.empty()) CAIRN_RETURN_IF_ERROR(CheckShards(split));
  }
  return splits;
}

}  // namespace cairn
