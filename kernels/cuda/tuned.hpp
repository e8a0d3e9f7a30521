// Keeps the algorithms that tuning found in a file from run to run: a line for each product, device and
// version of the library. A user who wants the same bits in every run takes algorithms from such a file, or
// those that the heuristic names first: tuning again may find another, as fast.
//
// Choices that an earlier run reported come before those of the file (prefer()).
//
// Ranks that share the file tune one after the other, and a later rank takes what an earlier one has found,
// so that ranks that compute the same compute the same bits. Hosts that have a file each tune for themselves.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "cuda/gemm.hpp"

namespace prun::cuda {

class TunedAlgorithms {
 public:
  // Reads the file, if it is there; with an empty name there is none. Lines that are damaged, or that another
  // program wrote, are passed over.
  explicit TunedAlgorithms(std::string file);

  // Takes lines in the form of the file, of which the first for a key counts.
  void prefer(std::string_view lines);
  // Returns what settle() chose since this was made, as such lines.
  std::string chosen() const;

  // Gives the plan the algorithm that is known for its product, or else tunes it on these operands and
  // remembers what that found. Either way the product has run, so that its kernel is loaded. Returns whether
  // it was tuned.
  bool settle(const Gemm& gemm, GemmPlan& plan, const GemmOperands& operands, Stream stream);

  // Does the same for the work that a key stands for. The key has no line breaks or tabs; neither have
  // algorithms. `choose` takes one that is known, if it can; `tune` finds one. The file's folder must be
  // there.
  bool settle(const std::string& key, const std::function<bool(const std::string&)>& choose,
              const std::function<std::string()>& tune);

  // Returns the algorithm for a key that is preferred or known, or an empty text.
  std::string find(const std::string& key) const;

 private:
  void read();
  void write() const;
  std::string known(const std::string& key) const;

  std::string file_;
  std::map<std::string, std::string> known_, preferred_, chosen_;
};

}  // namespace prun::cuda
