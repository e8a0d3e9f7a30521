// Checkpoints of one rank: written where they belong, whole, and by nobody else; whatever is wrong with one
// is said when it is read.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <random>

#include "base/crc32c.hpp"
#include "support/assembly_fixture.hpp"
#include "support/temp_folder.hpp"

namespace prun::test {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

// A trainer of the tiny model that saves into a folder.
struct Training {
  explicit Training(const fs::path& out, std::vector<std::string> sets = {})
      : assembly(tiny_recipe(with_out(out, std::move(sets))), plugins()), trainer(assembly, plugins()) {}

  void save_after(int steps) {
    train_steps(trainer, steps);
    trainer.save();
  }

  static std::vector<std::string> with_out(const fs::path& out, std::vector<std::string> sets) {
    sets.insert(sets.end(), {"run.out=" + out.string(), "model.layers=1", "model.hidden=16"});
    return sets;
  }

  Assembly assembly;
  Trainer trainer;
};

class Checkpoint : public testing::Test {
 protected:
  fs::path at(const std::string& name) const { return out_ / name; }
  fs::path file(const std::string& step) const { return out_ / step / "rank-00000.safetensors"; }
  std::string resume(const std::string& name = "") const { return "run.resume=" + at(name).string(); }
  CheckpointHead head(const std::string& step) const { return read_head(SafetensorsFile(file(step))); }

  // Names in the run folder that begin like a checkpoint's or a hidden one's, sorted.
  Names names() const {
    Names list;
    for (const auto& entry : fs::directory_iterator(out_))
      if (const std::string name = entry.path().filename(); name.starts_with("step") || name.starts_with("."))
        list.push_back(name);
    std::sort(list.begin(), list.end());
    return list;
  }

  const TempFolder folder_;
  const fs::path out_ = folder_ / "run";
};

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.code()), 2) << error.what();
    return error.what();
  }
  return "no error";
}

void expect_error(const std::string& part, const std::function<void()>& action) {
  const std::string message = error_of(action);
  EXPECT_NE(message.find(part), std::string::npos) << "wanted: " << part << "\ngot: " << message;
}

// ---------------------------------------------------------------- a save saves

TEST_F(Checkpoint, AStepIsSavedAgainAfterGoingBack) {
  {
    Training first(out_);
    first.save_after(3);
    first.save_after(2);
  }
  std::vector<double> expected;
  {
    Training back(out_, {resume("step-00000003"), "optimizer.lr=1e-4"});
    back.save_after(2);
    expected = parameters_of(back.trainer);
  }
  EXPECT_EQ(names(), (Names{"step-00000003", "step-00000005"}));
  EXPECT_EQ(head("step-00000005").run.id, head("step-00000003").run.id);
  EXPECT_EQ(head("step-00000005").save, 3);
  Training again(out_, {resume()});
  EXPECT_EQ(again.trainer.progress().step, 5);
  EXPECT_EQ(parameters_of(again.trainer), expected);
}

TEST_F(Checkpoint, LatestIsWhatWasSavedLast) {
  Training(out_).save_after(6);
  {
    Training first(out_, {resume()});
    first.save_after(2);
  }
  Training back(out_, {resume("step-00000006")});
  back.save_after(1);
  EXPECT_EQ(read_latest(out_), at("step-00000007"));
  back.trainer.save();
  EXPECT_EQ(read_latest(out_), at("step-00000007"));
  EXPECT_EQ(head("step-00000007").save, 4);
}

TEST_F(Checkpoint, AnotherRunLeavesTheFolderAlone) {
  Training(out_).save_after(2);
  const std::string before = read_file(file("step-00000002")), latest = read_file(at("latest"));
  Training other(out_);
  expect_error("holds the checkpoints of another run (" + head("step-00000002").run.id,
               [&] { other.trainer.claim_folder(); });
  expect_error("holds the checkpoints of another run", [&] { other.save_after(2); });
  EXPECT_EQ(read_file(file("step-00000002")), before);
  EXPECT_EQ(read_file(at("latest")), latest);
  EXPECT_EQ(names(), Names{"step-00000002"});
}

TEST_F(Checkpoint, AFolderThatAnotherRunTookMeanwhileIsLeftToIt) {
  Training first(out_), second(out_);
  first.trainer.claim_folder();
  second.trainer.claim_folder();
  expect_error("belongs to another run by now", [&] { first.save_after(1); });
  second.save_after(1);
}

TEST_F(Checkpoint, WhatStandsInTheWayIsNamedAndStays) {
  const fs::path other = folder_ / "other", place = at("step-00000002");
  Training(other).save_after(2);
  fs::create_directories(out_);
  const std::function<void()> obstacles[] = {
      [&] { fs::create_directory(place); },
      [&] { std::ofstream(place) << "a file"; },
      [&] { fs::copy(other / "step-00000002", place); },
      [&] { fs::create_directory_symlink(other / "step-00000002", place); },
  };
  for (const auto& put : obstacles) {
    Training early(out_), late(out_);
    late.trainer.claim_folder();
    put();
    const std::string refusal = place.string() + " is not a whole checkpoint of this run";
    expect_error(refusal, [&] { early.trainer.claim_folder(); });
    fs::remove(at("run.id"));
    expect_error(refusal, [&] { late.save_after(2); });
    EXPECT_EQ(names(), Names{"step-00000002"});
    EXPECT_FALSE(fs::exists(at("latest")));
    fs::remove_all(place);
  }
  EXPECT_TRUE(fs::exists(other / "step-00000002" / "rank-00000.safetensors"));
}

TEST_F(Checkpoint, ARunThatGoesOnElsewhereIsAnotherOne) {
  Training(out_).save_after(2);
  const std::string parent = head("step-00000002").run.id;
  EXPECT_TRUE(is_run_id(parent));
  EXPECT_EQ(head("step-00000002").run.parent, "");
  EXPECT_EQ(owner_of(out_)->id, parent);
  const fs::path elsewhere = folder_ / "elsewhere";
  Training(elsewhere, {resume()}).save_after(1);
  const CheckpointHead child = read_head(SafetensorsFile(elsewhere / "step-00000003/rank-00000.safetensors"));
  EXPECT_NE(child.run.id, parent);
  EXPECT_EQ(child.run.parent, parent + " at step 2");
  EXPECT_EQ(owner_of(elsewhere)->parent, parent + " at step 2");
  Training(elsewhere, {"run.resume=" + elsewhere.string()}).save_after(1);
  const CheckpointHead later = read_head(SafetensorsFile(elsewhere / "step-00000004/rank-00000.safetensors"));
  EXPECT_EQ(later.run.id, child.run.id);
  EXPECT_EQ(later.run.parent, child.run.parent);
}

TEST_F(Checkpoint, AFolderThatLostItsIdentityGetsItBack) {
  Training(out_).save_after(2);
  const std::string id = owner_of(out_)->id;
  fs::remove(at("run.id"));
  Training(out_, {resume()}).save_after(1);
  EXPECT_EQ(owner_of(out_)->id, id);
  EXPECT_EQ(head("step-00000003").run.id, id);
  std::ofstream(at("run.id")) << "garbage";
  expect_error("run.id', which says whose folder it is, is damaged; remove it",
               [&] { Training garbled(out_, {resume()}); });
  Training anew(out_);
  expect_error("run.id', which says whose folder it is, is damaged", [&] { anew.trainer.claim_folder(); });
}

TEST_F(Checkpoint, AFileOfAnotherStepOrRunIsRefused) {
  Training run(out_), other(folder_ / "other");
  run.save_after(1);
  run.save_after(1);
  other.save_after(2);
  const auto put = [&](const fs::path& path) {
    fs::copy_file(path, file("step-00000002"), fs::copy_options::overwrite_existing);
  };
  put(file("step-00000001"));
  expect_error(file("step-00000002").string() + " is a file of step 1 in a folder of step 2",
               [&] { check_checkpoint(run.assembly, out_); });
  put(folder_ / "other/step-00000002/rank-00000.safetensors");
  expect_error(file("step-00000002").string() + " is a file of run ",
               [&] { check_checkpoint(run.assembly, out_); });
  fs::rename(at("step-00000002"), at("step-best"));
  EXPECT_NO_THROW(check_checkpoint(run.assembly, at("step-best")));
}

// ---------------------------------------------------------------- keep

TEST_F(Checkpoint, KeepRemovesTheRunsOwnThatWereSavedFirst) {
  const Names others = {"step-00000001-good", "step-00000099", "step-3", "step-best", "step-final"};
  {
    Training first(out_, {"run.keep=2"});
    first.save_after(2);
    for (const std::string& name : others) fs::copy(at("step-00000002"), at(name));
    std::ofstream(at("step-note")) << "a file";
    for (int i = 0; i < 2; ++i) first.save_after(2);
  }
  Names expected = others;
  expected.insert(expected.end(), {"step-00000004", "step-00000006", "step-note"});
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(names(), expected);
  fs::remove_all(at("step-00000099"));
  std::erase(expected, "step-00000099");
  Training back(out_, {"run.keep=2", resume("step-00000004")});
  back.save_after(1);  // 6 was saved before 5 and after 4
  std::replace(expected.begin(), expected.end(), std::string("step-00000004"), std::string("step-00000005"));
  EXPECT_EQ(names(), expected);
  EXPECT_EQ(read_latest(out_), at("step-00000005"));
  back.save_after(2);
  std::replace(expected.begin(), expected.end(), std::string("step-00000006"), std::string("step-00000007"));
  EXPECT_EQ(names(), expected);
}

// ---------------------------------------------------------------- files that were changed by hand

struct Edit {
  std::function<void(SafetensorsMetadata&)> metadata = [](SafetensorsMetadata&) {};
  std::function<void(std::map<std::string, std::pair<SafetensorsSpec, std::string>>&)> tensors = [](auto&) {};
  Checksums checksums = Checksums::written;
};

// Writes a file anew, so that its checksums are right.
void rewrite(const fs::path& path, const Edit& edit) {
  std::map<std::string, std::pair<SafetensorsSpec, std::string>> tensors;
  SafetensorsMetadata metadata;
  {
    const SafetensorsFile file(path);
    metadata = file.index().metadata();
    for (const SafetensorsEntry& entry : file.entries()) {
      const auto bytes = file.bytes(entry);
      tensors[entry.name] = {{entry.name, *to_dtype(entry.type), entry.shape},
                             {reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
    }
  }
  for (const char* key : {"format", "prun.crc32c.data", "prun.crc32c.header"}) metadata.erase(key);
  edit.metadata(metadata);
  edit.tensors(tensors);
  std::vector<SafetensorsSpec> specs;
  for (const auto& [name, tensor] : tensors) specs.push_back(tensor.first);
  SafetensorsWriter writer(path, specs, metadata, edit.checksums);
  for (const SafetensorsSpec& spec : writer.order())
    writer.write(spec.name, std::as_bytes(std::span(tensors.at(spec.name).second)));
  writer.finish();
}

TEST_F(Checkpoint, StepsMayHaveNineDigits) {
  Training(out_).save_after(1);
  fs::rename(at("step-00000001"), at("step-99999998"));
  rewrite(file("step-99999998"), {[](SafetensorsMetadata& metadata) { metadata["prun.step"] = "99999998"; }});
  Training late(out_, {"run.keep=2", resume("step-99999998")});
  for (int i = 0; i < 3; ++i) late.save_after(1);
  EXPECT_EQ(names(), (Names{"step-100000000", "step-100000001"}));
  EXPECT_EQ(read_latest(out_), at("step-100000001"));
}

TEST_F(Checkpoint, EveryRefusalOfMetadataIsASentence) {
  Training run(out_);
  run.save_after(1);
  const std::string good = read_file(file("step-00000001"));
  const auto refused = [&](const std::string& part, const char* key, const char* value) {
    rewrite(file("step-00000001"), {[&](SafetensorsMetadata& metadata) {
              metadata.erase(key);
              if (value) metadata.emplace(key, value);
            }});
    expect_error(file("step-00000001").string(), [&] { check_checkpoint(run.assembly, out_); });
    expect_error(part, [&] { load_checkpoint(run.assembly, run.trainer.memory(), out_); });
    folder_.write("run/step-00000001/rank-00000.safetensors", good);
  };
  refused("is a checkpoint of format '1', this prun reads format '2'", "prun.format", "1");
  refused("is a checkpoint of format '3', this prun reads format '2'", "prun.format", "3");
  refused("metadata 'prun.format' is missing", "prun.format", nullptr);
  refused("metadata 'prun.run' is '../..', not the name of a run", "prun.run", "../..");
  for (const char* key : {"prun.run", "prun.parent", "prun.save", "prun.step", "prun.updates", "prun.samples",
                          "prun.rank", "prun.layout", "prun.parts"})
    refused(std::string("metadata '") + key + "' is missing", key, nullptr);
  for (const char* key : {"prun.save", "prun.step", "prun.updates", "prun.samples", "prun.rank"})
    for (const char* value : {"", "-1", "1x", "99999999999999999999"})
      refused(std::string("metadata '") + key + "' is no count", key, value);
  refused("was saved by the layout 'dp=2 state in parts over dp', the recipe makes it 'alike'", "prun.layout",
          "dp=2 state in parts over dp");
  refused("is the file of rank 1, not of rank 0", "prun.rank", "1");
  refused("holds other parts of the tensors", "prun.parts", "0");
  EXPECT_NO_THROW(check_checkpoint(run.assembly, out_));
}

TEST_F(Checkpoint, EveryRefusalOfTensorsIsASentence) {
  Training run(out_);
  run.save_after(1);
  const std::string good = read_file(file("step-00000001"));
  const auto refused = [&](const std::string& part, const Edit& edit) {
    rewrite(file("step-00000001"), edit);
    expect_error(part, [&] { load_checkpoint(run.assembly, run.trainer.memory(), out_); });
    folder_.write("run/step-00000001/rank-00000.safetensors", good);
  };
  std::string tensor;
  const SafetensorsFile saved(file("step-00000001"));
  for (const SafetensorsEntry& entry : saved.entries())
    if (entry.shape.size() == 2 && tensor.empty()) tensor = entry.name;
  ASSERT_FALSE(tensor.empty());
  refused("has no checksums", {.checksums = Checksums::absent});
  refused("the recipe needs", {.tensors = [&](auto& tensors) { tensors.erase(tensor); }});
  refused("has no tensor '" + tensor + "'", {.tensors = [&](auto& tensors) {
            auto moved = tensors.extract(tensor);
            moved.key() = moved.mapped().first.name = "another";
            tensors.insert(std::move(moved));
          }});
  refused("tensor '" + tensor + "' is F32[", {.tensors = [&](auto& tensors) {
            auto& shape = tensors.at(tensor).first.shape;
            shape = {shape[0] * shape[1]};
          }});
  refused("tensor '" + tensor + "' is I32[",
          {.tensors = [&](auto& tensors) { tensors.at(tensor).first.type = DType::i32; }});
  for (const float number : {NAN, INFINITY, -INFINITY})
    refused("tensor '" + tensor + "' holds ", {.tensors = [&](auto& tensors) {
              std::memcpy(tensors.at(tensor).second.data() + 20, &number, 4);
            }});
  refused("at element 5, and did when it was saved; go on from an earlier checkpoint",
          {.tensors = [&](auto& tensors) {
            const float number = NAN;
            std::memcpy(tensors.at(tensor).second.data() + 20, &number, 4);
          }});
  EXPECT_EQ(load_checkpoint(run.assembly, run.trainer.memory(), out_).head.progress.step, 1);
}

TEST_F(Checkpoint, WhatIsNoCheckpointIsRefusedAtOnce) {
  Training run(out_);
  const auto refused = [&](const std::string& part, const fs::path& where) {
    expect_error(part, [&] { check_checkpoint(run.assembly, where); });
  };
  refused("is not there; run.resume takes", at("nowhere"));
  run.save_after(1);
  refused("is not a folder; run.resume takes", file("step-00000001"));
  refused("is not there; run.resume takes", file("step-00000001") / "more");
  fs::create_directory(at("empty"));
  refused("holds no checkpoint: there is neither", at("empty"));
  fs::remove(file("step-00000001"));
  refused("holds no checkpoint: there is neither", at("step-00000001"));
  refused("step-00000001/rank-00000.safetensors is not there: the checkpoint is not whole", out_);
  ASSERT_EQ(::mkfifo(file("step-00000001").c_str(), 0600), 0);
  refused("it is not a file", out_);
  fs::remove(file("step-00000001"));
  fs::create_symlink("/dev/null", file("step-00000001"));
  refused("it is not a file", out_);
  fs::remove(file("step-00000001"));
  fs::create_directory(file("step-00000001"));
  refused("it is not a file", out_);
}

// ---------------------------------------------------------------- damage

// Something other than it was.
void flip(const fs::path& path, std::size_t at, std::mt19937& random) {
  std::string content = read_file(path.string());
  content[at] = static_cast<char>(content[at] ^ (1 + random() % 255));
  std::ofstream(path, std::ios::binary) << content;
}

TEST_F(Checkpoint, EveryDamagedByteIsFound) {
  Training run(out_);
  run.save_after(2);
  const Origin origin{out_, head("step-00000002").run, 2};
  const std::uint64_t header = SafetensorsFile(file("step-00000002")).entries().front().begin;
  std::mt19937 random(31);
  const int trials = std::getenv("PRUN_LONG") ? 3000 : 300;
  for (int trial = 0; trial < trials; ++trial) {
    const fs::path path = trial % 10 == 0   ? at("latest")
                          : trial % 10 == 1 ? at("run.id")
                                            : file("step-00000002");
    const std::string good = read_file(path.string());
    const std::size_t at =
        random() % (trial % 10 < 5 ? std::min<std::size_t>(good.size(), header) : good.size());
    flip(path, at, random);
    const std::string message = error_of([&] {
      load_checkpoint(run.assembly, run.trainer.memory(), out_);
      claim_folder(out_, origin);
    });
    EXPECT_NE(message, "no error") << path << " byte " << at;
    std::ofstream(path, std::ios::binary) << good;
  }
  load_checkpoint(run.assembly, run.trainer.memory(), out_);
  EXPECT_EQ(claim_folder(out_, origin).id, origin.run.id);
}

TEST_F(Checkpoint, ADamagedTensorIsNamed) {
  Training(out_).save_after(2);
  std::uint64_t begin = 0;
  std::string name;
  {
    const SafetensorsFile good(file("step-00000002"));
    begin = good.entries()[3].begin;
    name = good.entries()[3].name;
  }
  std::mt19937 random(5);
  flip(file("step-00000002"), begin + 1, random);
  expect_error("tensor '" + name + "': bytes " + std::to_string(begin) + " to ",
               [&] { Training damaged(out_, {resume()}); });
}

}  // namespace
}  // namespace prun::test
