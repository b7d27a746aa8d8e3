// Inside the library what went wrong is thrown, as a Refusal; `Guarded` turns it into a value for the caller.
#ifndef SEQLAB_ERROR_H_
#define SEQLAB_ERROR_H_

#include <exception>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "seqlab/runtime.h"

namespace seqlab {

// What the user or the bundle got wrong, in one sentence.
class Refusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A sentence of its parts.
template <typename... Parts>
std::string Join(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

template <typename... Parts>
[[noreturn]] void Refuse(const Parts&... parts) {
  throw Refusal(Join(parts...));
}

// What `run` returns, or what it threw. A Status for what returns nothing.
template <typename Run>
auto Guarded(Run&& run) -> std::conditional_t<std::is_void_v<decltype(run())>, Status, Result<decltype(run())>> {
  try {
    if constexpr (std::is_void_v<decltype(run())>) {
      run();
      return Status();
    } else {
      return run();
    }
  } catch (const std::bad_alloc&) {
    return Status("there is not enough memory");
  } catch (const std::exception& error) {
    return Status(*error.what() != '\0' ? error.what() : "something failed that says nothing of itself");
  } catch (...) {
    return Status("something failed that is no error of the standard library");
  }
}

}  // namespace seqlab

#endif  // SEQLAB_ERROR_H_
