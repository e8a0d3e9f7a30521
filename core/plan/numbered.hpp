// Lists whose entries are named by number elsewhere.
#pragma once

#include <concepts>
#include <cstddef>
#include <utility>
#include <vector>

namespace prun {

// A vector that takes any integer as an index: numbers in a plan are signed, since -1 says that there is
// none, and narrow, since there are many.
template <class T>
class Numbered : public std::vector<T> {
 public:
  using std::vector<T>::vector;
  Numbered(std::vector<T> list) : std::vector<T>(std::move(list)) {}

  template <std::integral Number>
  T& operator[](Number number) {
    return std::vector<T>::operator[](static_cast<std::size_t>(number));
  }
  template <std::integral Number>
  const T& operator[](Number number) const {
    return std::vector<T>::operator[](static_cast<std::size_t>(number));
  }
};

}  // namespace prun
