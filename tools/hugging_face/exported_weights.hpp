// Reads the numbers that an export has of a checkpoint's parameters: as they are, or with adapters merged in.
#pragma once

#include <string>
#include <vector>

#include "program/step_program.hpp"
#include "train/checkpoint/checkpoint_files.hpp"
#include "train/checkpoint/start_values.hpp"

namespace prun {

class ExportedWeights {
 public:
  // `base` has the parameters that the files lack; it is null where they have all. `which` says which weights
  // of the adapters to use.
  ExportedWeights(const Program& program, const CheckpointFiles& files, const StartValues* base,
                  Weights which)
      : program_(program), files_(files), base_(base), which_(which) {}

  // Returns a box of a parameter of a layer; `source` is the tensor of the files that has its numbers. A
  // tensor that adapters change, or that lies elsewhere, is read whole and kept until another is read.
  std::vector<float> read(Id parameter, std::int64_t layer, const std::string& source, const Slice& box);

 private:
  bool is_changed(Id parameter) const;
  void keep(Id parameter, std::int64_t layer, const std::string& source);
  std::vector<float> whole(Id parameter, std::int64_t layer, const std::string& source) const;
  std::vector<float> trained(Id parameter, std::int64_t layer) const;
  void add(const LowRankChange& change, std::int64_t layer);

  const Program& program_;
  const CheckpointFiles& files_;
  const StartValues* const base_;
  const Weights which_;
  Id kept_ = none;
  std::int64_t kept_layer_ = 0;
  std::vector<float> numbers_;  // those of the tensor that is kept
};

}  // namespace prun
