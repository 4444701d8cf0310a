// Goal: whatever a client sends as a Keras model, the answer is a model or an error, never an exception or worse.
// Models that Keras and tensorflow.js wrote are altered at random: values replaced, taken away, moved, text cut and
// changed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "common/base/check.h"
#include "common/formats/keras_model.h"
#include "common/model/graph.h"

namespace cairn {
namespace {

using Json = nlohmann::json;

std::vector<std::string> Fixtures() {
  const char* source = std::getenv("CAIRN_SOURCE");
  CAIRN_CHECK(source != nullptr, "run by ctest, or set CAIRN_SOURCE to the root of the tree");
  std::vector<std::string> texts;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(source) / "tests/unit/formats/keras")) {
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    texts.push_back(text.str());
  }
  return texts;
}

void Collect(Json& value, std::vector<Json*>* all) {
  all->push_back(&value);
  if (!value.is_structured()) return;
  for (Json& item : value) Collect(item, all);
}

class Alterer {
 public:
  explicit Alterer(uint64_t seed) : random_(seed) {}

  std::string Alter(const Json& model) {
    Json altered = model;
    for (int edits = Below(4); edits >= 0; --edits) Edit(altered);
    std::string text = altered.dump();
    if (Below(10) == 0) text[static_cast<size_t>(Below(static_cast<int>(text.size())))] = static_cast<char>(Below(256));
    if (Below(20) == 0) text.resize(static_cast<size_t>(Below(static_cast<int>(text.size()))));
    return text;
  }

 private:
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }

  void Edit(Json& model) {
    std::vector<Json*> all;
    Collect(model, &all);
    Json& at = *all[static_cast<size_t>(Below(static_cast<int>(all.size())))];
    static const Json kValues[] = {nullptr,
                                   true,
                                   false,
                                   0,
                                   -1,
                                   1,
                                   7,
                                   2147483647,
                                   -2147483648LL,
                                   1e300,
                                   0.5,
                                   "",
                                   "x",
                                   "relu",
                                   "Dense",
                                   Json::array(),
                                   Json::object(),
                                   Json::array({1, 2}),
                                   Json::array({nullptr, 3}),
                                   Json::array({Json::array({"x", 0, 0})})};
    switch (Below(4)) {
      case 0: at = kValues[Below(static_cast<int>(std::size(kValues)))]; break;
      case 1:  // what stands elsewhere
        at = Json(*all[static_cast<size_t>(Below(static_cast<int>(all.size())))]);
        break;
      case 2:
        if (at.is_structured() && !at.empty()) at.erase(std::next(at.begin(), Below(static_cast<int>(at.size()))));
        break;
      default:
        if (at.is_array() && !at.empty())
          at.push_back(Json(at[static_cast<size_t>(Below(static_cast<int>(at.size())))]));
        break;
    }
  }

  std::mt19937_64 random_;
};

TEST(KerasRandom, AnswersWhateverComes) {
  const std::vector<std::string> fixtures = Fixtures();
  ASSERT_GE(fixtures.size(), 5u);
  int good = 0, bad = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const std::string text = Alterer(seed).Alter(Json::parse(fixtures[seed % fixtures.size()]));
    absl::StatusOr<KerasModel> model = absl::UnknownError("");
    ASSERT_NO_THROW(model = ReadKerasModel(text)) << text;
    if (!model.ok()) {
      EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument) << model.status();
      ++bad;
      continue;
    }
    ++good;
    ASSERT_EQ(model->weight_paths.size(), static_cast<size_t>(model->model.layers_size()));
    (void)Graph::Build(model->model);
  }
  EXPECT_GT(good, 50);  // else the alterations reach nothing but the first check
  EXPECT_GT(bad, 500);
}

}  // namespace
}  // namespace cairn
