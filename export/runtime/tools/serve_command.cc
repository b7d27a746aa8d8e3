#include <cstdlib>

#include "commands.h"

namespace seqlab::tools {

Result<int> RunServe(ServeCommand command) {
  // A key on the command line could be read by every user of the machine.
  if (const char* key = std::getenv("SEQLAB_API_KEY")) command.options.api_key = key;
  const Status ended = serve::Serve(command.bundles, command.open, command.options);
  if (!ended.ok()) return ended;
  return 0;
}

}  // namespace seqlab::tools
