// Offline runs of Weights & Biases, taken apart by a reader that knows the format alone.
#include "plugins/observer/wandb/wandb_observer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "prun/error.hpp"
#include "tests/support/fake_options.hpp"
#include "tests/support/temp_folder.hpp"

namespace prun::wandb {
namespace {

using test::TempFolder;

std::uint64_t number_at(std::string_view text, std::size_t at, std::size_t bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i)
    value |= std::uint64_t{static_cast<unsigned char>(text.at(at + i))} << (8 * i);
  return value;
}

// Records whole, of pieces in blocks of 32 KiB, with their checksums looked at.
std::vector<std::string> records_in(const std::string& file) {
  const std::string text = test::read_file(file);
  EXPECT_EQ(text.substr(0, 7), std::string("\x3aW&B\xe1\xbe\x00", 7));
  std::vector<std::string> records;
  std::string record;
  bool within = false;
  for (std::size_t at = 7; at < text.size();) {
    const std::size_t left = 32768 - at % 32768;
    if (left < 7) {
      EXPECT_EQ(text.substr(at, left), std::string(left, '\0'));
      at += left;
      continue;
    }
    const std::size_t size = number_at(text, at + 4, 2);
    EXPECT_LE(size + 7, left);
    const std::string body = text.substr(at + 6, 1 + size);
    EXPECT_EQ(number_at(text, at, 4), crc32(body));
    const char piece = body[0];
    EXPECT_EQ(within, piece == 3 || piece == 4);
    within = piece == 2 || piece == 3;
    record += body.substr(1);
    if (piece == 1 || piece == 4) records.push_back(std::exchange(record, ""));
    at += 7 + size;
  }
  EXPECT_FALSE(within);
  return records;
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

struct Field {
  std::uint64_t number = 0, value = 0;
  std::string content;
};

std::vector<Field> fields_of(std::string_view message) {
  std::vector<Field> fields;
  while (!message.empty()) {
    const std::uint64_t key = varint(message);
    Field& field = fields.emplace_back();
    field.number = key >> 3;
    field.value = varint(message);
    if ((key & 7) == 2) {
      field.content = message.substr(0, field.value);
      message.remove_prefix(field.value);
    }
  }
  return fields;
}

// What of a message has a number, one after the other.
std::vector<Field> all(const std::vector<Field>& fields, std::uint64_t number) {
  std::vector<Field> found;
  for (const Field& field : fields)
    if (field.number == number) found.push_back(field);
  return found;
}

std::string content(const std::vector<Field>& fields, std::uint64_t number) {
  const std::vector<Field> found = all(fields, number);
  return found.empty() ? "" : found.front().content;
}

std::map<std::string, std::string> items_of(const std::string& message, std::uint64_t key) {
  std::map<std::string, std::string> items;
  for (const Field& item : all(fields_of(message), 1)) {
    const std::vector<Field> fields = fields_of(item.content);
    items[content(fields, key)] = content(fields, 16);
  }
  return items;
}

constexpr std::uint64_t history = 2, summary = 3, run = 17, ended = 18, header = 21;

// The records of a kind in the only run of a folder.
std::vector<std::string> messages(const std::string& folder, std::uint64_t kind) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename(), id = name.substr(name.rfind('-') + 1);
    EXPECT_EQ(name.find("offline-run-"), 0u);
    std::uint64_t number = 0;
    for (const std::string& record : records_in(entry.path() / ("run-" + id + ".wandb"))) {
      const std::vector<Field> fields = fields_of(record);
      EXPECT_EQ(all(fields, 1).at(0).value, ++number);
      for (const Field& field : all(fields, kind)) found.push_back(field.content);
    }
  }
  return found;
}

WandbObserver observer_at(const std::string& path) {
  test::FakeOptions options{{"path", path}, {"project", "mine"}};
  const Options read = options.options();
  return WandbObserver(read);
}

RunInfo run_in(const std::string& folder) {
  RunInfo info;
  info.name = "first", info.recipe = "a \"recipe\"", info.folder = folder, info.steps = 20;
  return info;
}

StepInfo step_of(std::int64_t step, double loss) {
  StepInfo info;
  info.step = step, info.loss = loss, info.lr = 1e-3;
  return info;
}

TEST(Wandb, ChecksumsAreThoseOfTheFormat) { EXPECT_EQ(crc32("123456789"), 0xcbf43926u); }

TEST(Wandb, AStepIsOneRowWithItsEvaluation) {
  const TempFolder folder;
  WandbObserver observer = observer_at("");
  observer.start(run_in(folder.path()));
  observer.step(step_of(1, 3.5));
  EvaluationInfo evaluation;
  evaluation.step = 1, evaluation.loss = 2.5;
  observer.evaluation(evaluation);
  observer.step(step_of(2, std::nan("")));
  observer.finish({});
  const std::string within = folder / "wandb";
  EXPECT_EQ(messages(within, header).size(), 1u);
  const std::vector<Field> facts = fields_of(messages(within, run).at(0));
  EXPECT_EQ(content(facts, 3), "mine");
  EXPECT_EQ(content(facts, 8), "first");
  EXPECT_EQ(items_of(content(facts, 4), 1).at("recipe"), "\"a \\\"recipe\\\"\"");
  const std::vector<std::string> rows = messages(within, history);
  ASSERT_EQ(rows.size(), 2u);
  const auto first = items_of(rows[0], 2), second = items_of(rows[1], 2);
  EXPECT_EQ(first.at("train/loss"), "3.5");
  EXPECT_EQ(first.at("eval/loss"), "2.5");
  EXPECT_EQ(first.at("_step"), "1");
  EXPECT_EQ(second.at("train/loss"), "NaN");
  EXPECT_EQ(second.at("train/lr"), "0.001");
  EXPECT_EQ(fields_of(content(fields_of(rows[1]), 2)).at(0).value, 2u);
  EXPECT_EQ(items_of(messages(within, summary).at(1), 2), second);
  EXPECT_TRUE(all(fields_of(messages(within, ended).at(0)), 1).empty());
}

TEST(Wandb, AFailureEndsTheLogBehindItsLastStep) {
  const TempFolder folder;
  WandbObserver observer = observer_at(folder.path());
  observer.start(run_in("elsewhere"));
  observer.step(step_of(7, 1));
  observer.event(EventKind::failed, "rank 1 is gone");
  EXPECT_EQ(messages(folder.path(), history).size(), 1u);
  EXPECT_EQ(all(fields_of(messages(folder.path(), ended).at(0)), 1).at(0).value, 1u);
}

TEST(Wandb, RecordsThatFillBlocksComeInPieces) {
  const TempFolder folder;
  std::vector<std::string> written;
  {
    TransactionLog log(folder / "log");
    for (const std::size_t size : {32700u, 40u, 1u, 100000u, 32760u, 3u, 65500u, 10u}) {
      written.emplace_back(size, static_cast<char>('a' + written.size()));
      log.add(written.back());
    }
  }
  EXPECT_EQ(records_in(folder / "log"), written);
}

TEST(Wandb, AFolderThatCannotBeMadeIsAStorageError) {
  const TempFolder folder;
  WandbObserver observer = observer_at(folder.write("file", "") + "/below");
  try {
    observer.start(run_in(folder.path()));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::storage);
  }
}

}  // namespace
}  // namespace prun::wandb
