package owncatalog

import (
	"errors"

	"github.com/apache/iceberg-go/catalog/rest"
	"github.com/aws/smithy-go"
)

// refused says whether an error of a catalog is about the credentials. A metastore over
// Thrift takes none.
func refused(err error) bool {
	if errors.Is(err, rest.ErrUnauthorized) || errors.Is(err, rest.ErrForbidden) || errors.Is(err, rest.ErrAuthorizationExpired) {
		return true
	}
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		switch e.ErrorCode() {
		case "AccessDeniedException", "ExpiredToken", "ExpiredTokenException", "IncompleteSignature", "InvalidClientTokenId",
			"InvalidSignatureException", "MissingAuthenticationToken", "NotAuthorized", "SignatureDoesNotMatch", "UnrecognizedClientException":
			return true
		}
	}
	return false
}
