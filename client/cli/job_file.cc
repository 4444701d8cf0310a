#include "client/cli/job_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "client/limits.h"
#include "common/base/roots.h"
#include "common/formats/expand_model.h"
#include "common/formats/job_text.h"
#include "common/formats/keras_archive.h"
#include "common/formats/keras_h5.h"
#include "common/formats/onnx_file.h"
#include "common/formats/plain_file.h"
#include "common/model/job_check.h"

namespace cairn {

absl::StatusOr<v1::JobSpec> LoadJobFile(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: is a directory; name the job file in it", path));
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrFormat("%s: cannot read the job file: %s", path, std::strerror(errno)));
  std::string text(kJobFileBytesMax + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kJobFileBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: longer than %d MiB; is this a job file?", path, kJobFileBytesMax >> 20));
  }
  CAIRN_RETURN_IF_ERROR(TakeUtf8(path, &text));
  return ParseJobText(text, path);
}

namespace {

// Reads the model in a file, as a job contains it.
absl::StatusOr<v1::Model> ModelOf(const std::string& path) {
  v1::Model model;
  if (absl::EndsWithIgnoreCase(path, ".onnx")) {
    CAIRN_ASSIGN_OR_RETURN(OnnxFile file, ReadOnnxFile(path));
    model = std::move(file.model);
  } else if (absl::EndsWithIgnoreCase(path, ".keras")) {
    CAIRN_ASSIGN_OR_RETURN(*model.mutable_keras_json(), ReadKerasArchiveConfig(path));
  } else if (absl::EndsWithIgnoreCase(path, ".h5") || absl::EndsWithIgnoreCase(path, ".hdf5")) {
    CAIRN_ASSIGN_OR_RETURN(*model.mutable_keras_json(), ReadKerasH5Config(path));
  } else if (absl::EndsWithIgnoreCase(path, ".json")) {
    CAIRN_ASSIGN_OR_RETURN(const Buffer bytes, ReadFileBytes(path));
    if (bytes.empty()) return absl::InvalidArgumentError(absl::StrFormat("--model %s: is empty", path));
    model.mutable_keras_json()->assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  } else if (absl::EndsWithIgnoreCase(path, ".safetensors")) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: holds weights without a model; --set initial_weights takes them", path));
  } else {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--model %s: is neither a .keras or .h5 file, an .onnx file nor a .json file of model.to_json()", path));
  }
  if (model.ByteSizeLong() > kJobFileBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--model %s: its description is longer than %d MiB", path, kJobFileBytesMax >> 20));
  }
  return model;
}

}  // namespace

absl::Status TakeModelFile(const std::string& path, v1::JobSpec* spec) {
  CAIRN_ASSIGN_OR_RETURN(*spec->mutable_model(), ModelOf(path));
  const bool has_weights = !absl::EndsWithIgnoreCase(path, ".json");
  if (!has_weights || !spec->initial_weights().empty() || !spec->resume_from().empty()) return absl::OkStatus();
  std::error_code error;
  spec->set_initial_weights(std::filesystem::absolute(path, error).lexically_normal().string());
  return absl::OkStatus();
}

absl::Status CheckResumeFrom(const v1::JobSpec& spec) {
  const std::string& from = spec.resume_from();
  std::error_code error;
  if (from.empty() || !std::all_of(from.begin(), from.end(), [](unsigned char c) { return absl::ascii_isdigit(c); }) ||
      std::filesystem::exists(from, error)) {
    return absl::OkStatus();
  }
  absl::Status status = absl::InvalidArgumentError(absl::StrFormat(
      "resume_from: \"%s\": give a checkpoint's directory, not a job's number; `cairn job %s` names it", from, from));
  status.SetPayload(kJobGivenPayload, absl::Cord(from));
  return status;
}

void MakeFilePathsAbsolute(v1::JobSpec* spec) {
  const auto absolute = [](const std::string& path) {
    if (MayNameRoot(path)) return path;
    std::error_code error;
    const std::filesystem::path here = std::filesystem::absolute(path, error);
    return path.empty() || error ? path : here.lexically_normal().string();
  };
  if (spec->has_checkpoints()) spec->mutable_checkpoints()->set_dir(absolute(spec->checkpoints().dir()));
  spec->set_resume_from(absolute(spec->resume_from()));
  spec->set_initial_weights(absolute(spec->initial_weights()));
  for (v1::Callback& callback : *spec->mutable_callbacks()) {
    if (callback.has_tensorboard()) {
      v1::TensorBoard& board = *callback.mutable_tensorboard();
      board.set_log_dir(absolute(board.log_dir().empty() ? "logs" : board.log_dir()));
    }
    if (callback.has_csv_logger())
      callback.mutable_csv_logger()->set_filename(absolute(callback.csv_logger().filename()));
    if (callback.has_model_checkpoint()) {
      callback.mutable_model_checkpoint()->set_filepath(absolute(callback.model_checkpoint().filepath()));
    }
    if (callback.has_backup_and_restore()) {
      callback.mutable_backup_and_restore()->set_backup_dir(absolute(callback.backup_and_restore().backup_dir()));
    }
  }
}

absl::Status CheckWithoutCluster(v1::JobSpec spec) {
  CAIRN_RETURN_IF_ERROR(ExpandJob(&spec));
  return CheckJob(spec).status();
}

absl::Status MakeDataPathAbsolute(v1::JobSpec* spec) {
  const std::filesystem::path path(spec->data().path());
  if (path.empty() || path.is_absolute() || MayNameRoot(spec->data().path())) return absl::OkStatus();
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(path, error).lexically_normal().string();
  if (error || !std::filesystem::exists(absolute, error)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "data.path: %s: there is no %s here; a relative path is resolved in the folder of `cairn submit`. Give the "
        "absolute path, as the workers see it: --set data.path=/...",
        path.string(), absolute));
  }
  spec->mutable_data()->set_path(absolute);
  return absl::OkStatus();
}

}  // namespace cairn
