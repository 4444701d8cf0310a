#include "common/formats/hdf5_file.h"

#include <hdf5.h>
#include <hdf5_hl.h>

#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"

namespace cairn {
namespace {

static_assert(sizeof(hid_t) <= sizeof(int64_t));

// What a small compressed array may grow to without being suspected.
constexpr uint64_t kGrowthFree = uint64_t{64} << 20;
constexpr uint64_t kGrowthMax = 1000;
constexpr int kDimensionsMax = 8;

// The library's: see the header.
ABSL_CONST_INIT absl::Mutex library_mutex(absl::kConstInit);

// Keeps the lock, and the library quiet, for one scope.
class Library {
 public:
  Library() : lock_(&library_mutex) { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

 private:
  absl::MutexLock lock_;
};

// Closes what it holds. The lock is held for its whole life.
class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  hid_t get() const { return id_; }
  bool ok() const { return id_ >= 0; }

 private:
  const hid_t id_;
  herr_t (*const close_)(hid_t);
};

absl::Status WriteError(const std::string& path, const std::string& what) {
  return absl::InternalError(absl::StrCat(path, ": cannot write ", what, "; is the disk full?"));
}

// Of a link by link: `a/b/c` is there and is no way out of the file. NOT_FOUND where it is missing.
absl::Status CheckPath(hid_t file, const std::string& path) {
  std::string at;
  for (const absl::string_view part : absl::StrSplit(path, '/')) {
    absl::StrAppend(&at, at.empty() ? "" : "/", part);
    const htri_t there = H5Lexists(file, at.c_str(), H5P_DEFAULT);
    if (there == 0) return absl::NotFoundError(absl::StrCat("\"", path, "\" is missing"));
    H5L_info_t info;
    if (there < 0 || H5Lget_info(file, at.c_str(), &info, H5P_DEFAULT) < 0) {
      return absl::DataLossError(absl::StrCat("\"", at, "\" cannot be read"));
    }
    if (info.type != H5L_TYPE_HARD) {
      return absl::DataLossError(absl::StrCat("\"", at, "\" is a link to somewhere else, which is not followed"));
    }
  }
  return absl::OkStatus();
}

// Its data lies in this file.
absl::Status CheckPlainLayout(hid_t dataset) {
  const Handle plist(H5Dget_create_plist(dataset), H5Pclose);
  if (!plist.ok()) return absl::DataLossError("cannot be read");
  if (H5Pget_external_count(plist.get()) != 0 || H5Pget_layout(plist.get()) == H5D_VIRTUAL) {
    return absl::DataLossError("its numbers lie in another file, which is not followed");
  }
  return absl::OkStatus();
}

absl::StatusOr<Shape> ShapeOf(hid_t dataset) {
  const Handle space(H5Dget_space(dataset), H5Sclose);
  const int rank = space.ok() ? H5Sget_simple_extent_ndims(space.get()) : -1;
  if (rank < 0 || rank > kDimensionsMax) return absl::DataLossError("its shape cannot be read");
  std::vector<hsize_t> dims(static_cast<size_t>(rank));
  if (rank > 0 && H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr) < 0) {
    return absl::DataLossError("its shape cannot be read");
  }
  Shape shape;
  uint64_t bytes = sizeof(float);
  for (const hsize_t dim : dims) {
    if (dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
        __builtin_mul_overflow(bytes, static_cast<uint64_t>(dim), &bytes)) {
      return absl::DataLossError("it has more numbers than can be counted");
    }
    shape.push_back(static_cast<int64_t>(dim));
  }
  const uint64_t stored = H5Dget_storage_size(dataset);
  if (bytes > kGrowthFree && bytes / kGrowthMax > stored) {
    return absl::DataLossError(absl::StrCat("its shape ", ToString(shape), " needs ", bytes, " bytes, but ", stored, " are stored"));
  }
  return shape;
}

absl::StatusOr<Hdf5Array> ReadArray(hid_t file, const std::string& path) {
  CAIRN_RETURN_IF_ERROR(CheckPath(file, path));
  const Handle dataset(H5Dopen2(file, path.c_str(), H5P_DEFAULT), H5Dclose);
  if (!dataset.ok()) return absl::DataLossError(absl::StrCat("\"", path, "\" is no array"));
  const Handle type(H5Dget_type(dataset.get()), H5Tclose);
  if (!type.ok() || H5Tget_class(type.get()) != H5T_FLOAT) {
    return absl::UnimplementedError(absl::StrCat("\"", path, "\" holds no float16, float32 or float64 numbers; save the model in float32"));
  }
  if (const absl::Status status = CheckPlainLayout(dataset.get()); !status.ok()) return Annotate(status, absl::StrCat("\"", path, "\""));
  absl::StatusOr<Shape> shape = ShapeOf(dataset.get());
  if (!shape.ok()) return Annotate(shape.status(), absl::StrCat("\"", path, "\""));
  Hdf5Array array{*std::move(shape), Buffer()};
  array.values = Buffer::Allocate(static_cast<size_t>(NumElements(array.shape)) * sizeof(float));
  if (!array.values.empty() &&
      H5Dread(dataset.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, array.values.mutable_data()) < 0) {
    return absl::DataLossError(absl::StrCat("\"", path, "\" cannot be read; the file is damaged"));
  }
  return array;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Hdf5Writer>> Hdf5Writer::Create(const std::string& path) {
  const Library library;
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  if (file < 0) return absl::InternalError(absl::StrCat(path, ": cannot create a file there"));
  return std::unique_ptr<Hdf5Writer>(new Hdf5Writer(path, file));
}

Hdf5Writer::~Hdf5Writer() {
  const Library library;
  if (file_ >= 0) H5Fclose(static_cast<hid_t>(file_));
}

absl::Status Hdf5Writer::AddGroup(const std::string& group, const std::string& name) {
  const Library library;
  const Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(links.get(), 1);
  const Handle made(H5Gcreate2(static_cast<hid_t>(file_), group.c_str(), links.get(), H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
  const Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  if (!made.ok() || !type.ok() || !space.ok()) return WriteError(path_, group);
  H5Tset_size(type.get(), H5T_VARIABLE);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  const Handle attribute(H5Acreate2(made.get(), "name", type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  const char* text = name.c_str();
  if (!attribute.ok() || H5Awrite(attribute.get(), type.get(), &text) < 0) return WriteError(path_, group);
  return absl::OkStatus();
}

absl::Status Hdf5Writer::AddArray(const std::string& group, const std::string& name, const Shape& shape,
                                  absl::Span<const float> values) {
  const Library library;
  const std::vector<hsize_t> dims(shape.begin(), shape.end());
  const Handle space(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr), H5Sclose);
  const std::string path = absl::StrCat(group, "/", name);
  if (!space.ok()) return WriteError(path_, path);
  const Handle dataset(H5Dcreate2(static_cast<hid_t>(file_), path.c_str(), H5T_IEEE_F32LE, space.get(), H5P_DEFAULT,
                                  H5P_DEFAULT, H5P_DEFAULT),
                       H5Dclose);
  if (!dataset.ok() || H5Dwrite(dataset.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0) {
    return WriteError(path_, path);
  }
  return absl::OkStatus();
}

absl::Status Hdf5Writer::Close() {
  const Library library;
  const hid_t file = static_cast<hid_t>(std::exchange(file_, -1));
  return H5Fclose(file) < 0 ? WriteError(path_, "its end") : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Hdf5Reader>> Hdf5Reader::Open(Buffer bytes, std::string where) {
  const Library library;
  // The library may write into an image that it shares; with these flags and no write it does not.
  void* const image = const_cast<uint8_t*>(bytes.data());
  const hid_t file = bytes.empty() ? -1 : H5LTopen_file_image(image, bytes.size(), H5LT_FILE_IMAGE_DONT_COPY | H5LT_FILE_IMAGE_DONT_RELEASE);
  if (file < 0) return absl::DataLossError(absl::StrCat(where, ": not an HDF5 file, or a damaged one"));
  return std::unique_ptr<Hdf5Reader>(new Hdf5Reader(std::move(bytes), std::move(where), file));
}

Hdf5Reader::~Hdf5Reader() {
  const Library library;
  H5Fclose(static_cast<hid_t>(file_));
}

absl::StatusOr<int64_t> Hdf5Reader::CountIn(const std::string& group) const {
  const Library library;
  const hid_t file = static_cast<hid_t>(file_);
  const absl::Status path = CheckPath(file, group);
  if (absl::IsNotFound(path)) return -1;
  if (!path.ok()) return Annotate(path, where_);
  const Handle opened(H5Gopen2(file, group.c_str(), H5P_DEFAULT), H5Gclose);
  H5G_info_t info;
  if (!opened.ok() || H5Gget_info(opened.get(), &info) < 0) {
    return absl::DataLossError(absl::StrCat(where_, ": \"", group, "\" is no group"));
  }
  return static_cast<int64_t>(info.nlinks);
}

absl::StatusOr<Hdf5Array> Hdf5Reader::Read(const std::string& group, const std::string& name) const {
  const Library library;
  absl::StatusOr<Hdf5Array> array = ReadArray(static_cast<hid_t>(file_), absl::StrCat(group, "/", name));
  if (!array.ok()) return Annotate(array.status(), where_);
  return array;
}

}  // namespace cairn
