// Saves that are read beside the steps that follow: whatever they overwrite, and however slowly it is read,
// what is saved is the state as it was.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/random.hpp"
#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "support/saved.hpp"
#include "support/temp_folder.hpp"
#include "train/checkpoint/saved_state.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::streamed_save_test {
namespace {

namespace fs = std::filesystem;

// ---------------------------------------------------------------- the way through memory

TEST(PieceRing, HandsOutPiecesInOrderInAnyMemory) {
  const RandomStream draw(7, 1);
  std::uint64_t n = 0;
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<std::int64_t> bytes(1 + draw.bits32(n++) % 60);
    for (std::int64_t& size : bytes) size = 1 + draw.bits32(n++) % 500;
    std::vector<std::byte> memory(500 + draw.bits32(n++) % 3000);
    std::size_t read = 0;
    PieceRing ring(memory, bytes, [&](std::size_t pieces) {
      EXPECT_GT(pieces, read);
      read = pieces;
    });
    std::vector<std::jthread> readers;
    for (std::uint32_t t = 0; t < 1 + draw.bits32(n) % 4; ++t)
      readers.emplace_back([&] {
        while (const auto room = ring.next_room()) {
          std::fill(room->bytes.begin(), room->bytes.end(), static_cast<std::byte>(room->piece));
          ring.filled(*room);
        }
      });
    std::size_t next = 0;
    while (const auto room = ring.take()) {
      EXPECT_EQ(room->piece, next);
      EXPECT_EQ(room->bytes.size(), static_cast<std::size_t>(bytes[next]));
      for (const std::byte byte : room->bytes) ASSERT_EQ(byte, static_cast<std::byte>(next));
      ++next;
    }
    EXPECT_EQ(next, bytes.size());
    EXPECT_EQ(read, bytes.size());
    ring.await_read();
  }
}

TEST(PieceRing, WhatIsGivenUpHoldsNobody) {
  std::vector<std::byte> memory(10);
  PieceRing ring(memory, {10, 10}, [](std::size_t) {});
  EXPECT_TRUE(ring.next_room());
  std::jthread waits([&] { EXPECT_FALSE(ring.next_room()); });
  std::jthread takes([&] { EXPECT_FALSE(ring.take()); });
  std::jthread awaits([&] { ring.await_read(); });
  ring.give_up();
}

// ---------------------------------------------------------------- what steps wait for

struct Setting {
  const char* name;
  std::string text;
  std::vector<std::string> sets;
};

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const Layout& layout : layouts()) all.push_back({layout.name, layout.text, layout.sets});
  const std::vector<std::string> bf16 = {"precision.compute=bf16", "precision.master=split"};
  const auto add = [&](const char* name, const std::string& text, const std::vector<std::string>& sets = {}) {
    all.push_back({name, text, sets});
  };
  add("host", offloaded(true, false, true));
  add("host_vertical", offloaded(true, true, true), with(bf16, {"batch.order=breadth_first"}));
  add("host_tiles", updated_here + by_tensor, bf16);
  add("drives", offloaded_to_drives("FOLDER"));
  add("drives_alone_vertical", drives_alone("FOLDER"), with(bf16, {"batch.order=breadth_first"}));
  add("shares", shared_by_all("FOLDER"), {"batch.order=breadth_first"});
  add("zero_drives", data_and_zero + offloaded_to_drives("FOLDER"), bf16);
  add("zero3_host", data_parallel(2) + "[[strategy]]\nplugin = 'zero'\nstage = 3\n" + offloaded(), bf16);
  return all;
}

class Streamed : public testing::TestWithParam<std::tuple<Setting, Target>> {
 protected:
  Recipe recipe(const std::string& out, std::vector<std::string> more = {}) {
    const auto& [setting, target] = GetParam();
    std::string text = setting.text;
    for (std::size_t at; (at = text.find("FOLDER")) != std::string::npos;)
      text.replace(at, 6, folder_.path());
    more = with({"run.save_every=1", "run.out=" + (folder_ / out)}, more);
    return tiny_recipe(with(with(setting.sets, target.sets), more), text);
  }
  const TempFolder folder_;
};

using Copies = std::vector<std::vector<std::byte>>;

std::vector<std::byte> bytes_of(const PlanMemory& memory, const HeldSlice& held) {
  const DType type = held.rounded == none ? held.type : DType::u16;
  std::vector<std::byte> bytes(static_cast<std::size_t>(held.slice.count * size_of(type)));
  memory.read(held.value, held.instance, held.at * size_of(type), bytes);
  if (held.rounded == none) return bytes;
  std::vector<std::byte> rounded(bytes.size());
  memory.read(held.rounded, held.instance, held.at * size_of(type), rounded);
  bytes.insert(bytes.end(), rounded.begin(), rounded.end());
  return bytes;
}

// Reads as a saver does that takes its time, and compares with what there was.
void read_slowly(Trainer& trainer, const std::vector<HeldSlice>& all, const Copies& before) {
  const Plan& plan = trainer.assembly().plan();
  for (std::size_t read = 0; read < plan.save_reads.size(); ++read) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (plan.save_read_of({all[i].value, all[i].instance}) != static_cast<std::int32_t>(read)) continue;
      EXPECT_TRUE(bytes_of(trainer.memory(), all[i]) == before[i]) << all[i].tensor << " in read " << read;
    }
    trainer.save_gate().pass(static_cast<std::int32_t>(read));
  }
}

TEST_P(Streamed, NothingIsOverwrittenBeforeItIsRead) {
  run_local_ranks(recipe("run"), plugins().places(), [&](Trainer& trainer) {
    const std::vector<HeldSlice> all = trainer.assembly().held_slices();
    train_steps(trainer, 1);
    for (int save = 0; save < 2; ++save) {
      Copies before;
      for (const HeldSlice& held : all) before.push_back(bytes_of(trainer.memory(), held));
      trainer.save_gate().close();
      std::jthread reader([&] { read_slowly(trainer, all, before); });
      trainer.run(3, [](const StepResult&) {});
    }
  });
}

std::string text_of(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// By name: the files that ranks wrote.
std::map<std::string, std::string> files_in(const fs::path& checkpoint) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(checkpoint))
    if (entry.path().extension() == ".safetensors") files[entry.path().filename()] = text_of(entry.path());
  return files;
}

TEST_P(Streamed, FilesAreThoseOfACopy) {
  for (const char* memory : {"all", "16MiB"})
    run_local_ranks(recipe(memory, {std::string("run.save_memory=") + memory}), plugins().places(),
                    [&](Trainer& trainer) {
                      for (int save = 0; save < 3; ++save) {
                        trainer.run(2, [](const StepResult&) {});
                        trainer.compare_replicas();
                        trainer.begin_save();
                      }
                      trainer.run(2, [](const StepResult&) {});
                      trainer.finish_save();
                    });
  for (const char* step : {"step-00000002", "step-00000004", "step-00000006"}) {
    const fs::path folder = folder_.path();
    const auto copied = files_in(folder / "all" / step);
    EXPECT_FALSE(copied.empty());
    EXPECT_TRUE(files_in(folder / "16MiB" / step) == copied) << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, Streamed,
                         testing::Combine(testing::ValuesIn(settings()), testing::ValuesIn(targets())),
                         [](const auto& tested) {
                           return std::string(std::get<0>(tested.param).name) + "_" +
                                  std::get<1>(tested.param).name;
                         });

// More than the buffer holds.
TEST(StreamedThroughLittle, FilesAreThoseOfACopy) {
  const TempFolder folder;
  for (const char* memory : {"all", "16MiB"}) {
    const Recipe recipe = tiny_recipe({"run.save_every=1", std::string("run.save_memory=") + memory,
                                       "model.layers=4", "model.hidden=384", "precision.compute=bf16",
                                       "precision.master=split", "run.out=" + (folder / memory)});
    const Assembly assembly(recipe, plugins());
    EXPECT_GT(assembly.process_need().saved_bytes, 3 * (16 << 20));
    EXPECT_EQ(assembly.process_need().save_bytes,
              memory == std::string("all") ? assembly.process_need().saved_bytes : 16 << 20);
    Trainer trainer(assembly, plugins());
    trainer.run(1, [](const StepResult&) {});
    trainer.begin_save();
    trainer.run(2, [](const StepResult&) {});
    trainer.finish_save();
  }
  EXPECT_TRUE(files_in(folder / "16MiB/step-00000001") == files_in(folder / "all/step-00000001"));
}

}  // namespace
}  // namespace prun::test::streamed_save_test
