// Goal: figures in file names are written as Python's str.format writes them, and bad templates are refused with what
// is wrong.
#include "common/model/path_template.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

std::string Fill(const std::string& text) {
  const auto path = PathTemplate::Parse(text);
  if (!path.ok()) return std::string(path.status().message());
  const auto filled =
      path->Fill({{"epoch", 7}, {"batch", 120}}, {{"val_loss", 0.31249}, {"accuracy", 1.0}, {"tiny", 1e-7}});
  return filled.ok() ? *filled : std::string(filled.status().message());
}

TEST(PathTemplate, AsPythonsFormat) {
  const std::pair<const char*, const char*> cases[] = {
      {"model.safetensors", "model.safetensors"},
      {"{epoch}", "7"},
      {"m-{epoch:02d}-{val_loss:.2f}.safetensors", "m-07-0.31.safetensors"},
      {"{epoch:4d}|{epoch:04}", "   7|0007"},
      {"{batch:05d}", "00120"},
      {"{val_loss}", "0.31249"},
      {"{accuracy}", "1.0"},
      {"{tiny}", "1e-07"},
      {"{val_loss:8.3f}|{val_loss:08.3f}", "   0.312|0000.312"},
      {"{val_loss:.1e}", "3.1e-01"},
      {"{val_loss:.3}|{val_loss:g}", "0.312|0.31249"},
      {"{epoch:.1f}", "7.0"},
      {"{{{epoch}}}", "{7}"},
      {"", ""},
  };
  for (const auto& [text, want] : cases) EXPECT_EQ(Fill(text), want) << text;
}

TEST(PathTemplate, WhatIsWrongIsSaid) {
  const std::pair<const char*, const char*> cases[] = {
      {"a{epoch", "a { without its }; write {{ for a brace"},
      {"a}b", "a } without its {; write }} for a brace"},
      {"{}", "{} names nothing; use {epoch} or a figure such as {val_loss:.2f}"},
      {"{epoch:x}", "\"x\" is not a format; use 02d for counts or .2f for figures"},
      {"{epoch:02d!}", "\"02d!\" is not a format; use 02d for counts or .2f for figures"},
      {"{epoch:.2d}", "\".2d\" is not a format; use 02d for counts or .2f for figures"},
      {"{epoch:999d}", "\"999d\" is not a format; use 02d for counts or .2f for figures"},
      {"{val_loss:.f}", "\".f\" is not a format; use 02d for counts or .2f for figures"},
      {"{val_loss:d}", "{val_loss} is not a whole number; use a format such as .2f"},
      {"{mae}", "there is no {mae} here"},
  };
  for (const auto& [text, want] : cases) EXPECT_EQ(Fill(text), want) << text;
}

TEST(PathTemplate, NamesAndBeginning) {
  const auto path = PathTemplate::Parse("/runs/a/{epoch}-{val_loss:.2f}-{epoch}.keras").value();
  EXPECT_EQ(path.Names(), (std::vector<std::string>{"epoch", "val_loss"}));
  EXPECT_EQ(path.Beginning(), "/runs/a/");
  EXPECT_EQ(PathTemplate::Parse("{epoch}").value().Beginning(), "");
}

TEST(PathTemplate, ShortestTextReadsBack) {
  const std::pair<double, const char*> cases[] = {{0.1, "0.1"},
                                                  {1.0 / 3, "0.3333333333333333"},
                                                  {100, "100.0"},
                                                  {1e16, "1e+16"},
                                                  {0.0001, "0.0001"},
                                                  {0.00001, "1e-05"},
                                                  {0, "0.0"},
                                                  {-2.5, "-2.5"},
                                                  {123456789, "123456789.0"}};
  for (const auto& [value, want] : cases) EXPECT_EQ(ShortestText(value), want);
}

}  // namespace
}  // namespace cairn
