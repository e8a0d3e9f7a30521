// The algorithms that tuning found, kept in a file from run to run: a line for each product, device and
// version of the library. Whoever wants the same bits in every run takes algorithms from such a file, or
// those that the heuristic names first: tuning again may find another, as fast.
#pragma once

#include <map>
#include <string>

#include "cuda/gemm.hpp"

namespace prun::cuda {

class TunedAlgorithms {
 public:
  // Reads the file, if it is there. Lines that are damaged, or that somebody else wrote, are passed over.
  explicit TunedAlgorithms(std::string file);

  // Gives the plan the algorithm that is known for its product, or else tunes it on these operands and
  // remembers what that found. Either way the product has run, so that its kernel is loaded. Whether it was
  // tuned.
  bool settle(const Gemm& gemm, GemmPlan& plan, const GemmOperands& operands, Stream stream);

  // The algorithm for a key, or an empty text; and one to remember. Neither has line breaks or tabs.
  std::string find(const std::string& key) const;
  void remember(const std::string& key, const std::string& algorithm);

  // Writes the file anew, if there is something new, with what others have written there in the meantime. Its
  // folder must be there.
  void save();

 private:
  using Lines = std::map<std::string, std::string>;
  static Lines read(const std::string& file);

  std::string file_;
  Lines known_;
  bool new_ = false;
};

}  // namespace prun::cuda
