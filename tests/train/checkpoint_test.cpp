// Checkpoints of one rank: written where they belong, whole, and by nobody else; whatever is wrong with one
// is said when it is read.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <random>

#include "base/crc32c.hpp"
#include "base/floats.hpp"
#include "support/assembly_fixture.hpp"
#include "support/saved.hpp"
#include "support/temp_folder.hpp"
#include "train/checkpoint/checkpoint_files.hpp"

namespace prun::test::checkpoint_test {
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
  Manifest head(const std::string& step) const { return read_manifest(at(step)); }

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
  const Manifest child = read_manifest(elsewhere / "step-00000003");
  EXPECT_NE(child.run.id, parent);
  EXPECT_EQ(child.run.parent, parent + " at step 2");
  EXPECT_EQ(owner_of(elsewhere)->parent, parent + " at step 2");
  Training(elsewhere, {"run.resume=" + elsewhere.string()}).save_after(1);
  const Manifest later = read_manifest(elsewhere / "step-00000004");
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

TEST_F(Checkpoint, OneOfAnotherStepOrRunIsRefused) {
  Training run(out_), other(folder_ / "other");
  run.save_after(1);
  run.save_after(1);
  other.save_after(2);
  const auto put = [&](const fs::path& checkpoint) {
    fs::remove_all(at("step-00000002"));
    fs::copy(checkpoint, at("step-00000002"));
  };
  put(at("step-00000001"));
  expect_error(at("step-00000002").string() + " is a folder of step 2 and holds a checkpoint of step 1",
               [&] { check_checkpoint(run.assembly, out_); });
  put(folder_ / "other/step-00000002");
  expect_error(at("step-00000002").string() + " is a checkpoint of run ",
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

TEST_F(Checkpoint, KeepEveryLetsSomeStay) {
  Training run(out_, {"run.keep=1", "run.keep_every=4"});
  for (int i = 0; i < 5; ++i) run.save_after(2);
  EXPECT_EQ(names(), (Names{"step-00000004", "step-00000008", "step-00000010"}));
}

// ---------------------------------------------------------------- files that were changed by hand

struct Edit {
  std::function<void(SafetensorsMetadata&)> metadata = [](SafetensorsMetadata&) {};
  std::function<void(std::map<std::string, std::pair<SafetensorsSpec, std::string>>&)> tensors = [](auto&) {};
  Checksums checksums = Checksums::written;
};

void put(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

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
  Manifest manifest = read_manifest(path.parent_path());
  manifest.files[0] = file_record(path);
  put(path.parent_path() / manifest_name, to_text(manifest));
}

// With another text in the place of one in the manifest, whose checksum is right.
void edit_manifest(const fs::path& checkpoint, const std::string& old, const std::string& text) {
  std::string manifest = read_file((checkpoint / manifest_name).string());
  ASSERT_NE(manifest.find(old), std::string::npos) << old;
  manifest.replace(manifest.find(old), old.size(), text);
  const std::size_t digits =
      manifest.size() - 11;  // before: eight digits, a quote, a brace, the end of the line
  manifest.replace(digits, 8, crc32c_text(crc32c(std::as_bytes(std::span(manifest).first(digits)))));
  put(checkpoint / manifest_name, manifest);
}

// The seal is right, so somebody meant it: whatever is counted so is trained on, as after as many samples.
TEST_F(Checkpoint, AForgedNumberOfSamplesIsTakenAsItIs) {
  Training run(out_);
  run.save_after(1);
  edit_manifest(at("step-00000001"), "\"samples\":4", "\"samples\":4503599627370496");
  Training resumed(out_, {resume()});
  resumed.save_after(2);
  EXPECT_EQ(head("step-00000003").progress.samples, 4503599627370496 + 8);
}

// ---------------------------------------------------------------- without `latest`

std::string note_of(Trainer& trainer) {
  std::string all;
  for (const std::string& warning : trainer.resume_warnings()) all += warning;
  return all;
}

TEST_F(Checkpoint, ARunKilledBeforeItsFirstLatestGoesOn) {
  Training run(out_);
  run.save_after(1);
  run.save_after(1);
  fs::remove(at("latest"));
  EXPECT_EQ(find_checkpoint(out_), at("step-00000002"));
  Training resumed(out_, {resume()});
  EXPECT_EQ(resumed.trainer.progress().step, 2);
  EXPECT_NE(note_of(resumed.trainer).find("has no `latest`"), std::string::npos);
  EXPECT_NE(note_of(resumed.trainer).find("step-00000002, which was saved last, stands for it"),
            std::string::npos);
  resumed.save_after(1);
  EXPECT_EQ(read_latest(out_), at("step-00000003"));
  EXPECT_EQ(note_without_latest(out_), "");
}

TEST_F(Checkpoint, WithoutLatestOnlyWhatIsWholeAndTheRunsOwnCounts) {
  Training(out_).save_after(1);
  const std::string other_folder = folder_ / "other";
  Training other(other_folder);
  other.save_after(2);
  fs::copy(other_folder + "/step-00000002", at("step-00000002"));
  fs::copy(at("step-00000001"), at("step-00000003"));  // of another step
  fs::create_directory(at("step-00000004"));
  fs::remove(at("latest"));
  EXPECT_EQ(find_checkpoint(out_), at("step-00000001"));
  fs::remove(at("step-00000001/manifest.json"));
  expect_error("holds no checkpoint", [&] { find_checkpoint(out_); });
}

TEST_F(Checkpoint, StepsMayHaveNineDigits) {
  Training(out_).save_after(1);
  fs::rename(at("step-00000001"), at("step-99999998"));
  edit_manifest(at("step-99999998"), "\"step\":1,", "\"step\":99999998,");
  Training late(out_, {"run.keep=2", resume("step-99999998")});
  for (int i = 0; i < 3; ++i) late.save_after(1);
  EXPECT_EQ(names(), (Names{"step-100000000", "step-100000001"}));
  EXPECT_EQ(read_latest(out_), at("step-100000001"));
}

TEST_F(Checkpoint, EveryRefusalOfAManifestIsASentence) {
  Training run(out_);
  run.save_after(1);
  const fs::path checkpoint = at("step-00000001"), manifest = checkpoint / manifest_name;
  const std::string good = read_file(manifest.string()), id = head("step-00000001").run.id;
  const auto refused = [&](const std::string& part, const std::string& old, const std::string& text) {
    edit_manifest(checkpoint, old, text);
    expect_error(manifest.string(), [&] { check_checkpoint(run.assembly, out_); });
    expect_error(part, [&] { load_checkpoint(run.assembly, run.trainer.memory(), out_, {}); });
    put(manifest, good);
  };
  for (const char* format : {"2", "4"})
    refused(std::string("it is of format ") + format + ", this prun reads format 3", "\"format\":3",
            std::string("\"format\":") + format);
  refused("'run' is '../..', not the name of a run", id, "../..");
  for (const char* key : {"format", "run", "parent", "save", "step", "updates", "samples", "mesh",
                          "arithmetic", "recipe", "plugins", "files"})
    refused("is no manifest that this prun can read: ", std::string("\"") + key + "\":", "\"another\":");
  for (const char* key : {"save", "step", "updates"})
    for (const char* value : {"-1", "\"1\"", "1.5", "99999999999999999999", "9223372036854775808", "1e300",
                              "9223372036854775807", "9007199254740993"})
      refused("is no manifest that this prun can read: ", std::string("\"") + key + "\":1",
              std::string("\"") + key + "\":" + value);
  for (const char* value : {"-1", "9223372036854775807", "9223372036854775808", "1e300"})
    refused("is no manifest that this prun can read: ", "\"samples\":4", std::string("\"samples\":") + value);
  refused("it counts 2 updates in 1 steps", "\"updates\":1", "\"updates\":2");
  refused("file 0 is called '../rank-00000.safetensors'", "\"name\":\"rank", "\"name\":\"../rank");
  EXPECT_NO_THROW(check_checkpoint(run.assembly, out_));
}

TEST_F(Checkpoint, ASliceThatCannotBeIsRefused) {
  Training run(out_);
  run.save_after(1);
  const std::string good = read_file(file("step-00000001").string()),
                    manifest = read_file((at("step-00000001") / manifest_name).string());
  std::string tensor, shape;
  const SafetensorsFile saved(file("step-00000001"));
  for (const SafetensorsEntry& entry : saved.entries())
    if (entry.shape.size() == 2 && tensor.empty()) {
      tensor = entry.name;
      shape = shape_text(entry.shape);
    }
  const auto refused = [&](const std::string& part, const std::string& described) {
    rewrite(file("step-00000001"), {.metadata = [&](SafetensorsMetadata& metadata) {
              metadata["prun.slices"] = described.empty() ? "{}" : "{\"" + tensor + "\":{" + described + "}}";
              if (described == "none") metadata.erase("prun.slices");
            }});
    expect_error(part, [&] { check_checkpoint(run.assembly, out_); });
    put(file("step-00000001"), good);
    put(at("step-00000001") / manifest_name, manifest);
  };
  const std::string impossible = "tensor '" + tensor + "' is no possible part of the whole that it names";
  refused("metadata 'prun.slices' is missing", "none");
  refused(impossible, "\"whole\":[1,1],\"start\":[0,0]");
  refused(impossible, "\"whole\":[1000],\"start\":[0]");
  refused(impossible, "\"whole\":[9000,9000],\"start\":[8999,0]");
  refused(impossible, "\"whole\":[9000,9000],\"start\":[-1,0]");
  refused(impossible, "\"whole\":[4611686018427387904,4611686018427387904],\"start\":[0,0]");
  refused(impossible, "\"whole\":" + shape + ",\"start\":[0,0],\"extent\":" + shape + ",\"first\":1");
  refused("; the checkpoint is not whole", "\"whole\":[9000,9000],\"start\":[0,0]");
  refused("prun.slices: ", "\"whole\"");
  EXPECT_NO_THROW(check_checkpoint(run.assembly, out_));
}

TEST_F(Checkpoint, EveryRefusalOfTensorsIsASentence) {
  Training run(out_);
  run.save_after(1);
  const std::string good = read_file(file("step-00000001")),
                    manifest = read_file((at("step-00000001") / manifest_name).string());
  const auto refused = [&](const std::string& part, const Edit& edit) {
    rewrite(file("step-00000001"), edit);
    expect_error(part, [&] { load_checkpoint(run.assembly, run.trainer.memory(), out_, {}); });
    put(file("step-00000001"), good);
    put(at("step-00000001") / manifest_name, manifest);
  };
  std::string tensor;
  const SafetensorsFile saved(file("step-00000001"));
  for (const SafetensorsEntry& entry : saved.entries())
    if (entry.shape.size() == 2 && tensor.empty()) tensor = entry.name;
  ASSERT_FALSE(tensor.empty());
  refused("is not the file that the manifest names",
          {.metadata = [](SafetensorsMetadata& metadata) { metadata["another"] = "text"; },
           .checksums = Checksums::absent});
  refused("has no tensor '" + tensor + "'", {.tensors = [&](auto& tensors) { tensors.erase(tensor); }});
  refused("the recipe needs", {.tensors = [&](auto& tensors) {
            auto another = tensors.at(tensor);
            another.first.name = "another";
            tensors.emplace("another", std::move(another));
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
  EXPECT_EQ(load_checkpoint(run.assembly, run.trainer.memory(), out_, {}).manifest.progress.step, 1);
}

TEST_F(Checkpoint, WhatIsNoCheckpointIsRefusedAtOnce) {
  Training run(out_);
  const auto refused = [&](const std::string& part, const fs::path& where) {
    expect_error(part, [&] { check_checkpoint(run.assembly, where); });
  };
  refused("is not there; give the folder of a checkpoint", at("nowhere"));
  run.save_after(1);
  refused("is not a folder; give the folder of a checkpoint", file("step-00000001"));
  refused("is not there; give the folder of a checkpoint", file("step-00000001") / "more");
  fs::create_directory(at("empty"));
  refused("holds no checkpoint: there is neither", at("empty"));
  fs::rename(at("step-00000001") / manifest_name, at("manifest"));
  refused("holds no checkpoint: there is neither", at("step-00000001"));
  refused("step-00000001/manifest.json is not there: the checkpoint is not whole", out_);
  fs::rename(at("manifest"), at("step-00000001") / manifest_name);
  fs::remove(file("step-00000001"));
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
  const int trials = std::getenv("PRUN_LONG") ? 10000 : 300;
  for (int trial = 0; trial < trials; ++trial) {
    const fs::path path = trial % 10 == 0   ? at("latest")
                          : trial % 10 == 1 ? at("run.id")
                          : trial % 10 < 4  ? at("step-00000002") / manifest_name
                                            : file("step-00000002");
    const std::string good = read_file(path.string());
    const std::size_t at =
        random() % (trial % 10 < 6 ? std::min<std::size_t>(good.size(), header) : good.size());
    flip(path, at, random);
    const std::string message = error_of([&] {
      load_checkpoint(run.assembly, run.trainer.memory(), out_, {});
      claim_folder(out_, origin);
    });
    EXPECT_NE(message, "no error") << path << " byte " << at;
    std::ofstream(path, std::ios::binary) << good;
  }
  load_checkpoint(run.assembly, run.trainer.memory(), out_, {});
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

// As a whole: no good load is taken for a damaged one.
TEST_F(Checkpoint, WhatIsWholeIsAlwaysFoundWhole) {
  Training run(out_);
  run.save_after(2);
  for (int trial = 0; trial < (std::getenv("PRUN_LONG") ? 1000 : 30); ++trial)
    ASSERT_NO_THROW(load_checkpoint(run.assembly, run.trainer.memory(), out_, {}));
}

TEST_F(Checkpoint, TheOneBeforeADamagedOneIsUsedAndSaid) {
  std::vector<double> expected;
  {
    Training run(out_);
    run.save_after(2);
    run.save_after(1);
    run.save_after(1);
    expected = parameters_of(run.trainer);
  }
  std::mt19937 random(7);
  flip(file("step-00000004"), fs::file_size(file("step-00000004")) - 10, random);
  flip(at("step-00000003") / manifest_name, 100, random);
  check_checkpoint(Training(out_).assembly, out_);
  expect_error("step-00000004/rank-00000.safetensors: tensor '",
               [&] { Training named(out_, {resume("step-00000004")}); });
  Training back(out_, {resume()});
  EXPECT_EQ(back.trainer.progress().step, 2);
  const std::vector<std::string> said = back.trainer.resume_warnings();
  ASSERT_EQ(said.size(), 2u);
  EXPECT_NE(said[0].find("step-00000004 cannot be used ("), std::string::npos) << said[0];
  EXPECT_NE(said[0].find(": tensor '"), std::string::npos) << said[0];
  EXPECT_NE(said[1].find("step-00000003 cannot be used ("), std::string::npos) << said[1];
  EXPECT_NE(said[1].find("; going on from the one before it, " + at("step-00000002").string()),
            std::string::npos);
  back.trainer.claim_folder();
  EXPECT_EQ(names(), (Names{"step-00000002", "step-00000003.damaged", "step-00000004.damaged"}));
  EXPECT_EQ(read_latest(out_), at("step-00000002"));
  back.save_after(2);
  EXPECT_EQ(parameters_of(back.trainer), expected);
}

// ---------------------------------------------------------------- recipes that have changed

TEST_F(Checkpoint, WhatChangesTheSamplesMustBeAskedFor) {
  Training(out_).save_after(2);
  for (const std::string set : {"run.seed=9", "data.shuffle=false"}) {
    const std::string key = set.substr(0, set.find('='));
    expect_error(" with " + key + " = ", [&] { Training other(out_, {resume(), set}); });
    expect_error("add --set run.allow_changed=" + key, [&] { Training other(out_, {resume(), set}); });
  }
  Training asked(out_,
                 {resume(), "run.seed=9", "data.shuffle=false", "run.allow_changed=run.seed,data.shuffle"});
  EXPECT_EQ(asked.trainer.progress().step, 2);
}

TEST_F(Checkpoint, KeysThatWereStoredByOldNamesAreThoseOfToday) {
  Training(out_).save_after(2);
  const fs::path checkpoint = at("step-00000002");
  edit_manifest(checkpoint, "\"data.mask_documents\":\"false\"", R"("data.documents":"\"joined\"")");
  edit_manifest(checkpoint, R"("batch.order":"\"depth_first\"")", R"("batch.order":"\"horizontal\"")");
  edit_manifest(checkpoint, "\"precision.state\"", R"("precision.matmul":"\"compute\"","precision.state")");
  edit_manifest(checkpoint, "\"run.allow_changed\"", "\"run.changed\"");
  EXPECT_EQ(Training(out_, {resume()}).trainer.resume_notes().size(), 1u);
  edit_manifest(checkpoint, R"("data.documents":"\"joined\"")", R"("data.documents":"\"apart\"")");
  expect_error("with data.mask_documents = false", [&] { Training other(out_, {resume()}); });
}

// What a strategy adds has nothing to go on from.
TEST_F(Checkpoint, WhatAStrategyAddsStartsFromTheSeedWhereThatIsAskedFor) {
  const std::string adapter = "strategy.0.plugin=adapter", asked = "run.allow_changed=strategy.0.plugin";
  Training(out_).save_after(2);
  expect_error(
      "which strategy 'adapter' adds to the model; if it is to start from the seed, add --set " + asked, [&] {
        Training other(out_, {resume(), adapter});
      });
  const fs::path fresh = folder_ / "fresh", on = folder_ / "on";
  const std::string beside = "strategy.0.freeze=false";
  Training(fresh, {adapter, beside}).trainer.save();
  Training(on, {resume(), adapter, beside, asked}).trainer.save();
  const Tensors base = saved_in(at("step-00000002")), seeded = saved_in(fresh / "step-00000000"),
                both = saved_in(on / "step-00000002");
  std::size_t added = 0;
  for (const auto& [name, bytes] : both) {
    added += !base.contains(name);
    EXPECT_EQ(bytes, (base.contains(name) ? base : seeded).at(name)) << name;
  }
  EXPECT_GT(added, 0u);
  Training(on, {"run.resume=" + (on / "step-00000002").string(), adapter, beside}).save_after(1);
}

TEST_F(Checkpoint, WhatElseIsMissingStaysAnError) {
  Training(out_, {"strategy.0.plugin=adapter", "strategy.0.freeze=false"}).save_after(1);
  expect_error("holds ", [&] { Training other(out_, {resume(), "run.allow_changed=strategy.0.plugin"}); });
  expect_error("has no tensor", [&] {
    Training other(out_,
                   {resume(), "strategy.0.plugin=adapter", "strategy.0.freeze=false", "optimizer.plugin=sgd",
                    "optimizer.momentum=0.9", "run.allow_changed=strategy.0.plugin"});
  });
}

// By the tensor's name, those that are kept in the given format.
std::map<std::string, std::vector<float>> moments_in(const fs::path& checkpoint, DType type) {
  const CheckpointFiles files(checkpoint);
  std::map<std::string, std::vector<float>> moments;
  for (const auto& [name, tensor] : files.tensors()) {
    if (!name.ends_with(".m") && !name.ends_with(".v")) continue;
    EXPECT_EQ(tensor.type, type) << name;
    const TensorSlice all{name, tensor.type, whole_slice(tensor.shape)};
    std::vector<std::byte> bytes(static_cast<std::size_t>(all.bytes()));
    files.read(all, bytes);
    std::vector<float>& numbers = moments[name];
    numbers.resize(static_cast<std::size_t>(all.slice.count));
    load_floats(tensor.type, bytes, numbers);
  }
  return moments;
}

TEST_F(Checkpoint, MomentsAreConvertedWhereThatIsAskedFor) {
  Training(out_).save_after(2);
  const Names half = {resume(), "precision.moments=bf16"}, asked = {"run.allow_changed=precision.moments"};
  try {
    Training(folder_ / "refused", half);
    FAIL() << "bits were lost silently";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(".m' is F32["), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("BF16["), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("add --set run.allow_changed=precision.moments"),
              std::string::npos);
  }
  const auto with = [](Names sets, const Names& more) {
    sets.insert(sets.end(), more.begin(), more.end());
    return sets;
  };
  Training(folder_ / "half", with(half, asked)).trainer.save();
  const auto before = moments_in(at("step-00000002"), DType::f32),
             rounded = moments_in(fs::path(folder_ / "half") / "step-00000002", DType::bf16);
  ASSERT_FALSE(before.empty());
  for (const auto& [name, numbers] : before)
    for (std::size_t i = 0; i < numbers.size(); ++i)
      EXPECT_EQ(rounded.at(name)[i], static_cast<float>(bf16(numbers[i]))) << name << " " << i;
  Training(folder_ / "back", with({"run.resume=" + (folder_ / "half")}, asked)).trainer.save();
  EXPECT_EQ(moments_in(fs::path(folder_ / "back") / "step-00000002", DType::f32), rounded);
}

TEST_F(Checkpoint, WhatHasChangedIsTold) {
  Training(out_).save_after(2);
  EXPECT_EQ(Training(out_, {resume()}).trainer.resume_notes().size(), 1u);
  const Training other(out_, {resume(), "optimizer.lr=1e-4", "batch.micro=1", "run.steps=999", "run.keep=7"});
  const std::vector<std::string> notes = other.trainer.resume_notes();
  ASSERT_EQ(notes.size(), 3u);
  EXPECT_NE(notes[0].find("step 2, 2 updates and 8 samples are its own"), std::string::npos) << notes[0];
  EXPECT_NE(notes[1].find("optimizer.lr from "), std::string::npos) << notes[1];
  EXPECT_NE(notes[1].find("run.steps from "), std::string::npos) << notes[1];
  EXPECT_EQ(notes[1].find("run.keep"), std::string::npos) << notes[1];
  EXPECT_NE(notes[2].find("batch.micro from "), std::string::npos) << notes[2];
  EXPECT_TRUE(Training(folder_ / "new").trainer.resume_notes().empty());
  const std::string manifest = read_file((at("step-00000002") / manifest_name).string());
  const std::string before = "\"sha256\":\"";
  const std::size_t digest = manifest.find(before, manifest.find("\"name\":\"adamw\"")) + before.size();
  edit_manifest(at("step-00000002"), manifest.substr(digest, 64), std::string(64, '0'));
  edit_manifest(at("step-00000002"), "isa = ", "isa was ");
  const std::vector<std::string> others = Training(out_, {resume()}).trainer.resume_notes();
  ASSERT_EQ(others.size(), 3u);
  EXPECT_EQ(others[1], "other builds of plugins than saved it: optimizer adamw");
  EXPECT_NE(others[2].find("computes other bits than the device that saved it: isa was "), std::string::npos);
}

}  // namespace
}  // namespace prun::test::checkpoint_test
