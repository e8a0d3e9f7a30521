// Whenever a save is cut off, and whatever of it had not been synced is lost, torn or reordered: what is
// found is the checkpoint before, or the new one, whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <utility>

#include "recorder.hpp"
#include "support/assembly_fixture.hpp"
#include "support/saved.hpp"
#include "support/temp_folder.hpp"
#include "train/loop/local_ranks.hpp"

namespace prun::test::crash_test {
namespace {

namespace fs = std::filesystem;
using Kind = FileCall::Kind;

// ---------------------------------------------------------------- what a disk holds

struct Node {
  bool is_folder = false;
  std::string bytes;
  std::map<std::string, std::shared_ptr<Node>> names;
};
using NodePtr = std::shared_ptr<Node>;

NodePtr read_tree(const fs::path& path) {
  auto node = std::make_shared<Node>();
  node->is_folder = fs::is_directory(path);
  if (!node->is_folder) node->bytes = read_file(path.string());
  if (node->is_folder)
    for (const auto& entry : fs::directory_iterator(path))
      node->names[entry.path().filename()] = read_tree(entry.path());
  return node;
}

void write_tree(const Node& node, const fs::path& path) {
  if (!node.is_folder) {
    std::ofstream(path, std::ios::binary) << node.bytes;
    return;
  }
  fs::create_directory(path);
  for (const auto& [name, child] : node.names) write_tree(*child, path / name);
}

NodePtr copy_of(const Node& node) {
  auto copy = std::make_shared<Node>(node);
  for (auto& [name, child] : copy->names) child = copy_of(*child);
  return copy;
}

// Calls that reach the disk, one by one; one whose place is missing does nothing.
class Disk {
 public:
  explicit Disk(const Node& before) : root_(copy_of(before)) {}

  // Of a write, only so many bytes.
  void apply(const FileCall& call, std::size_t bytes = std::string::npos) {
    switch (call.kind) {
      case Kind::create:
      case Kind::make_folder: make(call); break;
      case Kind::write: write(call, std::min(bytes, call.bytes.size())); break;
      case Kind::sync: break;
      case Kind::rename: rename(call); break;
      case Kind::exchange: exchange(call); break;
      case Kind::remove: remove(call); break;
    }
  }
  const Node& root() const { return *root_; }

 private:
  // The folder that has the name; null: it is not there.
  NodePtr folder_of(const std::string& path) const {
    NodePtr node = root_;
    for (const fs::path& part : fs::path(path).parent_path()) {
      const auto found = node->names.find(part);
      if (found == node->names.end()) return nullptr;
      node = found->second;
    }
    return node;
  }
  static std::string name_of(const std::string& path) { return fs::path(path).filename(); }

  void make(const FileCall& call) {
    NodePtr& node = made_[call.node];
    node = std::make_shared<Node>();
    node->is_folder = call.kind == Kind::make_folder;
    if (const NodePtr folder = folder_of(call.path)) folder->names[name_of(call.path)] = node;
  }
  void write(const FileCall& call, std::size_t count) {
    NodePtr& node = made_[call.node];
    if (!node) return;
    const auto offset = static_cast<std::size_t>(call.offset);
    // Its size may be there before its bytes are.
    node->bytes.resize(std::max(node->bytes.size(), offset + call.bytes.size()), '\0');
    node->bytes.replace(offset, count, call.bytes, 0, count);
  }
  void rename(const FileCall& call) {
    const NodePtr from = folder_of(call.path), to = folder_of(call.to);
    if (!from || !to || !from->names.contains(name_of(call.path))) return;
    to->names[name_of(call.to)] = from->names[name_of(call.path)];
    from->names.erase(name_of(call.path));
  }
  void exchange(const FileCall& call) {
    const NodePtr from = folder_of(call.path), to = folder_of(call.to);
    if (!from || !to || !from->names.contains(name_of(call.path)) || !to->names.contains(name_of(call.to)))
      return;
    std::swap(from->names[name_of(call.path)], to->names[name_of(call.to)]);
  }
  void remove(const FileCall& call) {
    if (const NodePtr folder = folder_of(call.path)) folder->names.erase(name_of(call.path));
  }

  NodePtr root_;
  std::map<std::int64_t, NodePtr> made_;
};

// ---------------------------------------------------------------- which calls a crash may undo

// Of the first `count` calls, those that no sync has made certain.
std::vector<std::size_t> uncertain(const std::vector<FileCall>& calls, std::size_t count) {
  std::vector<std::size_t> list;
  for (std::size_t i = 0; i < count; ++i) {
    if (calls[i].kind == Kind::sync) continue;
    const std::int64_t by = calls[i].kind == Kind::write ? calls[i].node : calls[i].folder;
    const bool certain = std::any_of(
        calls.begin() + static_cast<std::ptrdiff_t>(i), calls.begin() + static_cast<std::ptrdiff_t>(count),
        [&](const FileCall& later) { return later.kind == Kind::sync && later.node == by; });
    if (!certain) list.push_back(i);
  }
  return list;
}

// What becomes of each uncertain call: all of it, or so many bytes of a write (0: nothing, of any).
using Fate = std::map<std::size_t, std::size_t>;

std::vector<Fate> fates(const std::vector<FileCall>& calls, const std::vector<std::size_t>& open,
                        std::mt19937& random, int drawn) {
  std::vector<Fate> list = {{}};
  Fate none;
  for (const std::size_t call : open) {
    none[call] = 0;
    list.push_back({{call, 0}});
  }
  list.push_back(none);
  for (int i = 0; i < drawn && !open.empty(); ++i) {
    Fate fate;
    for (const std::size_t call : open) {
      const std::size_t size = calls[call].bytes.size();
      if (random() % 2 == 0) fate[call] = size > 0 && random() % 2 == 0 ? random() % size : 0;
    }
    list.push_back(std::move(fate));
  }
  return list;
}

// ---------------------------------------------------------------- a save that is cut off

class Crash : public testing::Test {
 protected:
  Recipe recipe(const std::string& layout, std::vector<std::string> sets = {}) const {
    sets.insert(sets.end(), {"run.out=" + (folder_ / "run"), "model.layers=1", "model.hidden=16",
                             "batch.micro=1", "comm.default=meet", "device.threads=1"});
    return tiny_recipe(sets, layout);
  }

  // Of a save that comes after another, as `saves` lets a trainer do both.
  template <class First, class Second>
  void record(const Recipe& of, First&& first, Second&& second) {
    std::unique_ptr<FileRecorder> recorder;
    const int world = static_cast<int>(mesh_of(of).world());
    run_local_ranks(of, plugins().places(), [&](Trainer& trainer) {
      const bool is_first = trainer.assembly().rank() == 0;
      first(trainer);
      if (is_first) {
        before_ = read_tree(folder_ / "run");
        old_ = saved_in(*read_latest(folder_ / "run"));
        recorder = std::make_unique<FileRecorder>(folder_ / "run");
      }
      second(trainer);
      if (is_first) calls_ = recorder->calls();
    });
    recorder.reset();
    new_ = saved_in(*read_latest(folder_ / "run"));
    std::printf("%zu calls of %d ranks\n", calls_.size(), world);
  }

  // The first state in which neither is found whole; or nothing.
  std::string try_states() {
    std::mt19937 random(3);
    const Assembly assembly(recipe(""), plugins());
    Trainer trainer(assembly, plugins());
    std::size_t states = 0;
    for (std::size_t count = 0; count <= calls_.size(); ++count) {
      const std::vector<std::size_t> open = uncertain(calls_, count);
      for (const Fate& fate : fates(calls_, open, random, std::getenv("PRUN_LONG") ? 60 : 2)) {
        Disk disk(*before_);
        for (std::size_t i = 0; i < count; ++i) {
          const auto fated = fate.find(i);
          if (fated == fate.end())
            disk.apply(calls_[i]);
          else if (fated->second > 0)
            disk.apply(calls_[i], fated->second);
        }
        ++states;
        const std::string trouble = trouble_of(disk.root(), trainer, count);
        if (trouble.empty()) continue;
        std::printf("%zu states until one is neither\n", states);
        return "after " + std::to_string(count) + " calls: " + trouble;
      }
    }
    std::printf("%zu states: the old one in %zu, the new one in %zu\n", states, found_old_, found_new_);
    EXPECT_GE(states, 1000u);
    return {};
  }

  // What is wrong with what is found in a state after so many calls; or nothing.
  std::string trouble_of(const Node& root, Trainer& trainer, std::size_t count) {
    const fs::path crashed = folder_ / "crashed";
    fs::remove_all(crashed);
    write_tree(root, crashed);
    try {
      const LoadedCheckpoint loaded = load_checkpoint(trainer.assembly(), trainer.memory(), crashed, {});
      if (!loaded.damaged.empty()) return loaded.damaged.front().why;
      const Tensors found = saved_in(loaded.folder);
      found_new_ += found == new_;
      found_old_ += found == old_;
      return found == new_ || (found == old_ && count < calls_.size()) ? "" : "another one was found";
    } catch (const Error& error) {
      return error.what();
    }
  }

  const TempFolder folder_;
  NodePtr before_;
  std::vector<FileCall> calls_;
  Tensors old_, new_;
  std::size_t found_old_ = 0, found_new_ = 0;
};

const std::string zero3 = data_parallel(2) + "[[strategy]]\nplugin = 'zero'\nstage = 3\n";

void step_and_save(Trainer& trainer) {
  trainer.step();
  trainer.save();
}

// Something else, at the same step.
void change_and_save(Trainer& trainer) {
  bool changed = false;
  trainer.assembly().each_parameter([&](Id id, std::int32_t instance) {
    const float number = 42;
    if (!std::exchange(changed, true))
      trainer.memory().write(id, instance, 0, std::as_bytes(std::span(&number, 1)));
  });
  trainer.save();
}

// The one before is removed once the new one is certain.
TEST_F(Crash, OfASaveThatRemovesTheOneBefore) {
  record(recipe(zero3, {"run.keep=1"}), step_and_save, step_and_save);
  EXPECT_EQ(try_states(), "");
  EXPECT_GT(found_old_, 100u);
  EXPECT_GT(found_new_, 40u);
}

// Two folders trade places.
TEST_F(Crash, OfASaveInThePlaceOfAnother) {
  record(recipe(""), step_and_save, change_and_save);
  EXPECT_FALSE(old_ == new_);
  EXPECT_EQ(try_states(), "");
  EXPECT_GT(found_old_, 100u);
  EXPECT_GT(found_new_, 40u);
}

TEST_F(Crash, WithoutSyncsIsNoticed) {
  record(recipe("", {"run.keep=1"}), step_and_save, step_and_save);
  std::erase_if(calls_, [](const FileCall& call) { return call.kind == Kind::sync; });
  EXPECT_NE(try_states(), "");
}

}  // namespace
}  // namespace prun::test::crash_test
