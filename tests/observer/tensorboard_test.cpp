// Files of events, taken apart by a reader that knows the format alone.
#include "plugins/observer/tensorboard/tensorboard_observer.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "base/crc32c.hpp"
#include "tests/support/fake_options.hpp"
#include "tests/support/temp_folder.hpp"

namespace prun::tensorboard {
namespace {

using test::TempFolder;

template <class Word>
Word fixed(std::string_view& text) {
  Word word{};
  for (std::size_t i = 0; i < sizeof word; ++i)
    word |= static_cast<Word>(static_cast<unsigned char>(text[i])) << (8 * i);
  text.remove_prefix(sizeof word);
  return word;
}

std::uint64_t varint(std::string_view& text) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(text.at(0));
    text.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
}

std::uint32_t masked(std::string_view text) {
  return std::rotr(crc32c(std::as_bytes(std::span(text))), 15) + 0xa282ead8u;
}

struct Read {
  double time = 0;
  std::int64_t step = 0;
  std::string version;
  std::optional<std::uint64_t> session;
  std::map<std::string, float> scalars;
};

// Calls body(field, rest): it takes the field's value from the front.
template <class Body>
void each_field(std::string_view message, Body&& body) {
  while (!message.empty()) {
    const std::uint64_t key = varint(message);
    body(static_cast<int>(key >> 3), static_cast<int>(key & 7), message);
  }
}

std::string_view sized(std::string_view& text) {
  const std::uint64_t size = varint(text);
  const std::string_view content = text.substr(0, size);
  text.remove_prefix(size);
  return content;
}

void read_value(std::string_view message, Read& event) {
  std::string tag;
  each_field(message, [&](int field, int type, std::string_view& rest) {
    if (field == 1 && type == 2) tag = sized(rest);
    if (field == 2 && type == 5) event.scalars[tag] = std::bit_cast<float>(fixed<std::uint32_t>(rest));
  });
}

Read read_event(std::string_view message) {
  Read event;
  each_field(message, [&](int field, int type, std::string_view& rest) {
    if (field == 1 && type == 1) event.time = std::bit_cast<double>(fixed<std::uint64_t>(rest));
    if (field == 2 && type == 0) event.step = static_cast<std::int64_t>(varint(rest));
    if (field == 3 && type == 2) event.version = sized(rest);
    if (field == 5 && type == 2)
      each_field(sized(rest), [&](int, int, std::string_view& value) { read_value(sized(value), event); });
    if (field == 7 && type == 2)
      each_field(sized(rest), [&](int, int, std::string_view& status) { event.session = varint(status); });
  });
  return event;
}

std::vector<Read> read_events(const std::string& file) {
  const std::string text = test::read_file(file);
  std::vector<Read> events;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view header = rest.substr(0, 8);
    const auto length = fixed<std::uint64_t>(rest);
    EXPECT_EQ(fixed<std::uint32_t>(rest), masked(header));
    const std::string_view payload = rest.substr(0, length);
    rest.remove_prefix(length);
    EXPECT_EQ(fixed<std::uint32_t>(rest), masked(payload));
    events.push_back(read_event(payload));
  }
  return events;
}

std::string only_file(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  EXPECT_EQ(files.size(), 1u);
  return files.at(0);
}

RunInfo run_in(const std::string& folder, std::int64_t first_step = 1) {
  RunInfo info;
  info.folder = folder;
  info.first_step = first_step;
  info.tokens_per_step = 512, info.flops_per_token = 1e9, info.peak_flops = 1e12;
  return info;
}

TensorboardObserver observer_at(const std::string& path) {
  test::FakeOptions options{{"path", path}};
  const Options read = options.options();
  return TensorboardObserver(read);
}

StepInfo step_of(std::int64_t step) {
  StepInfo info;
  info.step = step;
  info.tokens = 512, info.all_tokens = 512 * step;
  info.loss = 3.25, info.grad_norm = 0.5, info.lr = 3e-4, info.seconds = 2, info.exposed_seconds = 0.5;
  return info;
}

TEST(MaskedCrc, IsThatOfTheFormat) {
  EXPECT_EQ(masked_crc("123456789"), std::rotr(0xe3069283u, 15) + 0xa282ead8u);
  EXPECT_EQ(masked_crc(""), 0xa282ead8u);
}

TEST(Tensorboard, WhatARunSaysIsInTheFile) {
  const TempFolder folder;
  TensorboardObserver observer = observer_at("");
  observer.start(run_in(folder.path()));
  observer.step(step_of(1));
  StepInfo masked_step = step_of(300);
  const std::vector<EvaluatedLoss> losses = {{"role.user", 4.5, 1}};
  masked_step.losses = {losses.data(), losses.size()};
  masked_step.loss = std::nan(""), masked_step.kept = false, masked_step.exposed_seconds = -1;
  observer.step(masked_step);
  EvaluationInfo evaluation;
  evaluation.step = 300, evaluation.loss = 2.5, evaluation.seconds = 1;
  const std::vector<EvaluatedLoss> sets = {{"average", 1.5, 8}, {"data", 2.25, 7}, {"data.blend.0", 4, 1}};
  evaluation.sets = {sets.data(), sets.size()};
  observer.evaluation(evaluation);
  const std::vector<RankMemory> memory = {{0, 0, 1024}, {0, 0, 4096}};
  observer.finish({{memory.data(), memory.size()}});
  const std::string file = only_file(folder / "tensorboard");
  EXPECT_EQ(std::filesystem::path(file).filename().string().rfind("events.out.tfevents.", 0), 0u);
  const std::vector<Read> events = read_events(file);
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_GT(events[0].time, 1.6e9);
  EXPECT_EQ(events[1].step, 1);
  const std::map<std::string, float> first = {
      {"train/loss", 3.25f},      {"train/grad_norm", 0.5f},
      {"train/lr", 3e-4f},        {"train/tokens", 512},
      {"time/step_seconds", 2},   {"throughput/tokens_per_second", 256},
      {"throughput/mfu", 0.256f}, {"throughput/exposed_communication", 0.25f}};
  EXPECT_EQ(events[1].scalars, first);
  EXPECT_EQ(events[2].step, 300);
  EXPECT_TRUE(std::isnan(events[2].scalars.at("train/loss")));
  EXPECT_EQ(events[2].scalars.at("train/skipped_update"), 1);
  EXPECT_EQ(events[2].scalars.at("train/loss/role.user"), 4.5f);
  EXPECT_EQ(events[2].scalars.count("throughput/exposed_communication"), 0u);
  EXPECT_EQ(events[3].scalars.at("eval/loss"), 2.5f);
  EXPECT_EQ(events[3].scalars.at("eval/loss/average"), 1.5f);
  EXPECT_EQ(events[3].scalars.at("eval/loss/data"), 2.25f);
  EXPECT_EQ(events[3].scalars.at("eval/loss/data.blend.0"), 4);
  EXPECT_EQ(events[4].scalars.at("memory/peak_bytes"), 4096);
}

TEST(Tensorboard, AResumedRunSaysFromWhereItGoesOn) {
  const TempFolder folder;
  TensorboardObserver observer = observer_at(folder / "here");
  observer.start(run_in(folder.path(), 41));
  const std::vector<Read> events = read_events(only_file(folder / "here"));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].step, 41);
  EXPECT_EQ(events[1].session, 1u);
}

TEST(Tensorboard, AFolderThatCannotBeMadeIsAStorageError) {
  const TempFolder folder;
  TensorboardObserver observer = observer_at(folder.write("file", "") + "/below");
  try {
    observer.start(run_in(folder.path()));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::storage);
    EXPECT_NE(std::string(error.what()).find("file/below"), std::string::npos);
  }
}

}  // namespace
}  // namespace prun::tensorboard
